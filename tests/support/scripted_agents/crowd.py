"""A stack with one worker, the walkers as its agents and a provider as their model; and many runs on it."""

import json
from pathlib import Path
from typing import Any, LiteralString

import psutil
import psycopg

from tests.support import processes
from tests.support.people import Office
from tests.support.provider.server import KEY
from tests.support.stack import Stack

START = """
import json
from django.db import transaction
from runtime import broker
from runtime.control.start import create
from runtime.ports.access import Actor
started = []
for number in range({number}):
    with transaction.atomic():
        made = create(agent={agent!r}, input={{"name": str(number)}}, requester=Actor(person="ada"))
    started.append(str(made.run))
broker._thread.flush()
print("started", json.dumps(started))
"""

CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
STATUSES = "SELECT status, count(*) FROM runtime_run WHERE agent = %s GROUP BY 1"


def stack_of(home: Path, provider: str) -> Stack:
    """Not started yet; `provider` is the base URL of the model."""
    return Stack(
        home,
        SIGNOFF_AGENTS="tests.support.provider.walkers",
        SIGNOFF_MODEL="openai:loopback",
        OPENAI_BASE_URL=provider,
        OPENAI_API_KEY=KEY,
    )


class Crowd:
    """Many runs on a stack, seen through the worker and through Postgres."""

    def __init__(self, stack: Stack) -> None:
        self.office = Office(stack)
        self.stack = stack
        self.connection = psycopg.connect(self.worker.environ()["DATABASE_URL"], autocommit=True)

    @property
    def worker(self) -> psutil.Process:
        return processes.of(self.stack, "worker").process

    def start(self, agent: str, number: int) -> list[str]:
        said = self.office.execute(START.format(agent=agent, number=number))
        started: list[str] = json.loads(said.split("started", 1)[1])
        return started

    def statuses(self, agent: str) -> dict[str, int]:
        return dict(self.connection.execute(STATUSES, (agent,)).fetchall())

    def connections(self) -> int:
        return int(self.one(CONNECTIONS, f"signoff worker {self.worker.pid}"))

    def status(self, run: str) -> str:
        return str(self.one("SELECT status FROM runtime_run WHERE id = %s", run))

    def one(self, statement: LiteralString, *values: object) -> Any:
        row = self.connection.execute(statement, values).fetchone()
        assert row is not None
        return row[0]
