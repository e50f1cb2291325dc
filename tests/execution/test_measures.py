"""A worker stores its counts with its heartbeat."""

from runtime.models import JournalEntry, WorkerProcess
from runtime.store import pool
from tests.support.engine import Rig


def test_a_heartbeat_stores_the_steps_of_a_run(gated: Rig) -> None:
    run = gated.start("a")
    assert gated.advance(run).status == "suspended"
    with pool.open_own() as connection:
        gated.heartbeat._beat(connection)
    measures = WorkerProcess.objects.get(id=gated.heartbeat.worker).measures
    entries = JournalEntry.objects.filter(run_id=run).count()
    assert sum(measures["buckets"]) == entries - 1  # the first one was written at the start
    assert measures["seconds"] > 0
