"""One real worker process full of runs that wait for their model."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from config.broker.consumer import RESERVED
from config.processes import CONNECTIONS_OF_A_WORKER, list_processes
from tests.support import processes
from tests.support.people import until
from tests.support.provider.slow import SlowProvider
from tests.support.scripted_agents.crowd import Crowd, stack_of

pytestmark = pytest.mark.e2e

(WORKER,) = [process for process in list_processes() if process.name == "worker"]
PLACES = int(WORKER.command[WORKER.command.index("--concurrency") + 1])
NEW = PLACES - PLACES // RESERVED
MORE = 10  # than there are places for
WITHIN = 120.0

WORKERS_OF_WAITING = """
    SELECT count(DISTINCT worker) FROM runtime_run WHERE status = 'waiting' AND id <> %s
"""


@pytest.fixture(scope="module")
def provider() -> Iterator[SlowProvider]:
    with SlowProvider(steps=1) as one:
        yield one


@pytest.fixture(scope="module")
def crowd(sandbox: Path, provider: SlowProvider) -> Iterator[Crowd]:
    with stack_of(sandbox / "crowd", provider.url) as stack:
        one = Crowd(stack)
        yield one
        one.connection.close()


def test_a_full_worker_takes_decisions_first(crowd: Crowd, provider: SlowProvider) -> None:
    (asking,) = crowd.start("careful_walker", 1)
    crowd.office.wait(asking, "suspended")
    provider.hold()
    crowd.start("walker", NEW + MORE)
    assert NEW > 100
    assert provider.wait_for(NEW, WITHIN), f"{provider.waiting} wait at the provider"
    assert crowd.connections() <= CONNECTIONS_OF_A_WORKER

    code, _ = crowd.office.decide("bea", crowd.office.approval(asking), "approve")
    assert code == 200
    crowd.office.wait(asking, "completed")
    assert provider.waiting == NEW  # no run was released, and no further run admitted
    assert crowd.statuses("walker") == {"running": NEW, "queued": MORE}

    provider.release()
    done = {"completed": NEW + MORE}
    until(lambda: crowd.statuses("walker") == done or None, "every walk to end", WITHIN)
    assert provider.asked == 2 * (NEW + MORE) + 2


def test_a_refusal_to_one_worker_delays_the_other(crowd: Crowd, provider: SlowProvider) -> None:
    provider.refuses = True
    with processes.another(crowd.stack, "worker", "second"):
        (refused,) = crowd.start("walker", 1)
        until(lambda: crowd.status(refused) == "waiting" or None, "the refused run to wait")
        asked = provider.asked

        def both() -> bool | None:
            """Tell whether runs of both workers wait, and none has sent a request."""
            crowd.start("walker", 10)
            return crowd.one(WORKERS_OF_WAITING, refused) == 2 or None

        until(both, "both workers to hold a run back")
        assert provider.asked == asked
