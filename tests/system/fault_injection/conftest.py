"""A zygote on the servers of the session, and the people."""

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote
from uuid import UUID

import pytest
import redis
from django.conf import settings
from django.db import connection
from kombu.connection import Connection

from config import celery
from config.broker import transport
from runtime.broker import dispatch
from runtime.broker.dispatch import ADVANCE
from runtime.control import verification
from tests.support import ledger
from tests.support.cast import Cast
from tests.system.fault_injection.harness.counts import LONG
from tests.system.fault_injection.harness.office import Office
from tests.system.fault_injection.harness.processes import Zygote

LEASE = "3"

# Slow tests that gain nothing from repetition run only in the long form.
collect_ignore = [] if LONG else ["test_promotion.py"]


class Switchboard:
    """Sends every hint at a run to the broker chosen for it, so that a test says which worker gets the run.

    A thread chooses for the runs that it starts.

    The broker's databases are as many brokers that know nothing of each other; number 0 is everybody's.
    """

    def __init__(self, redis_url: str) -> None:
        self._path = redis_url.removeprefix("unix://")
        self._here = threading.local()
        self._routes: dict[UUID, int] = {}

    def address(self, number: int) -> str:
        return f"{transport.SCHEME}+socket://{self._path}?virtual_host={number}"

    def clear(self, number: int) -> None:
        with redis.Redis(unix_socket_path=self._path, db=number) as client:
            client.flushdb()

    def choose(self, number: int) -> None:
        """Hints at runs that this thread starts from now on go there."""
        self._here.number = number

    def release(self, run: UUID) -> None:
        """Let every worker claim the run from now on."""
        self._routes[run] = 0

    def hint_all(self, hints: Sequence[dispatch.Message]) -> None:
        for run, queue in hints:
            self.hint(run, queue)

    def hint(self, run: UUID, queue: str = "") -> None:
        number = self._routes.setdefault(run, getattr(self._here, "number", 0))
        with Connection(self.address(number)) as broker:  # type: ignore[no-untyped-call]
            celery.app.send_task(
                ADVANCE,
                args=[str(run)],
                queue=queue if queue in dispatch.QUEUES else dispatch.RESUMED,
                connection=broker,
                retry=False,
                ignore_result=True,
            )


@pytest.fixture
def switchboard(broker_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Switchboard]:
    board = Switchboard(broker_url)
    for number in range(16):
        board.clear(number)
    monkeypatch.setattr(dispatch, "dispatch", board.hint)
    monkeypatch.setattr(dispatch, "send_all", board.hint_all)
    yield board
    for number in range(16):
        board.clear(number)


@pytest.fixture
def office(cast: Cast, tmp_path: Path) -> Iterator[Office]:
    """Yield the office, then check that the stored states match the journals."""
    yield Office(ledger=tmp_path / "ledger")
    looked = [verification.verify(run) for run in verification.runs(live=False)]
    assert [one for one in looked if not one.is_consistent] == []


@pytest.fixture
def zygote(
    transactional_db: None, broker_url: str, office: Office, tmp_path: Path
) -> Iterator[Zygote]:
    """Children work on the test database, the session's broker, keys and ledger."""
    one = Zygote(
        {
            "DATABASE_URL": _database_url(),
            "REDIS_URL": broker_url,
            "KEYS_DIR": str(settings.KEYS_DIR),
            "ABEYANCE_AGENTS": "tests.support.scripted_agents.flows",
            "ABEYANCE_LEASE_SECONDS": LEASE,
            ledger.PATH: str(office.ledger),
        },
        tmp_path,
    )
    yield one
    one.stop()


def _database_url() -> str:
    where = connection.settings_dict
    who = f"{where['USER']}:{quote(where['PASSWORD'])}"
    host = quote(str(where["HOST"]), safe="")
    port = f":{where['PORT']}" if where["PORT"] else ""
    return f"postgres://{who}@{host}{port}/{where['NAME']}"
