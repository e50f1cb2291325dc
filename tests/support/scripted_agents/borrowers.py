"""An agent whose tool uses Django's connection for a while, and notes each start in the ledger of `holding`."""

from django.db import connection

from agents.sdk import ToolContext, tool
from agents.sdk.scripts import Reply, Turn, call, say, script
from tests.support.scripted_agents.holding import write
from tests.support.specs import spec_of

SECONDS = 0.3


@tool(effect="write")
def ask_postgres(context: ToolContext, name: str) -> str:
    """Keep a connection busy."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(%s)", [SECONDS])
    write("ask_postgres", "begin", name)
    return "asked"


@script
def ask(turn: Turn) -> Reply:
    """Plays borrower."""
    if turn.result("ask_postgres"):
        return say("Done.")
    return call("ask_postgres", name=turn.input["name"])


borrower = spec_of("borrower", model=ask, tools=[ask_postgres])
