"""An agent whose tool uses Django's connection for a while, and notes each start in the ledger of `holding`."""

from django.db import connection

from agents.sdk import ToolContext, agent, tool
from agents.sdk.scripts import (
    Reply,
    Turn,
    call,
    say,
    script,
)
from tests.support.scripted_agents.holding import Errand, write

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


borrower = agent(
    name="borrower",
    description="Asks Postgres, ends.",
    instructions="Ask.",
    input=Errand,
    model=ask,
    tools=[ask_postgres],
)
