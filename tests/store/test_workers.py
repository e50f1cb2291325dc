"""Which processes count as alive, and when they are forgotten."""

from datetime import timedelta
from uuid import uuid4

from django.utils import timezone

from runtime.models import Loop, Worker
from runtime.store import workers
from runtime.store.pool import Connection


def test_a_worker_that_beats_again_is_alive(own: Connection) -> None:
    one, other = uuid4(), uuid4()
    beat = {
        "host": "here",
        "process": 1,
        "agents": "{}",
        "isolated": False,
        "hung": False,
        "lease": 10.0,
    }
    for worker in (one, other):
        own.execute(workers.BEAT, {**beat, "worker": worker})
    long_ago = timezone.now() - timedelta(hours=2)
    Worker.objects.update(beat_at=long_ago)
    own.execute(workers.BEAT, {**beat, "worker": one})
    assert Worker.objects.get(id=one).beat_at > long_ago
    assert Worker.objects.get(id=other).beat_at == long_ago


def test_only_workers_and_sweepers_long_gone_are_forgotten(own: Connection) -> None:
    for hours in (0, 23, 25):
        at = timezone.now() - timedelta(hours=hours)
        worker = Worker.objects.create(id=uuid4(), host=f"{hours}", process=1)
        Worker.objects.filter(id=worker.id).update(beat_at=at)
        for name in (f"{workers.SWEEPER}{hours}", f"loop {hours}"):
            Loop.objects.create(name=name, done_at=at)
    own.execute(workers.FORGET)
    assert set(Worker.objects.values_list("host", flat=True)) == {"0", "23"}
    gone = {f"{workers.SWEEPER}25"}
    assert {f"{workers.SWEEPER}0", f"{workers.SWEEPER}23", "loop 25"} <= _loops()
    assert not _loops() & gone, "a loop that is late stays, to be known as late"


def _loops() -> set[str]:
    return set(Loop.objects.values_list("name", flat=True))
