"""Which processes count as alive, and when they are forgotten."""

from collections.abc import Iterator
from datetime import timedelta
from uuid import uuid4

import pytest
from django.utils import timezone

from runtime import database, workers
from runtime.database import Connection
from runtime.models import Worker


@pytest.fixture
def own(transactional_db: None) -> Iterator[Connection]:
    with database.own() as one:
        yield one


def test_a_worker_that_beats_again_is_alive(own: Connection) -> None:
    one, other = uuid4(), uuid4()
    beat = {"host": "here", "process": 1, "agents": "{}", "isolated": False, "hung": False}
    for worker in (one, other):
        own.execute(workers.BEAT, {**beat, "worker": worker})
    long_ago = timezone.now() - timedelta(hours=2)
    Worker.objects.update(beat_at=long_ago)
    own.execute(workers.BEAT, {**beat, "worker": one})
    assert Worker.objects.get(id=one).beat_at > long_ago
    assert Worker.objects.get(id=other).beat_at == long_ago


def test_only_workers_long_gone_are_forgotten(own: Connection) -> None:
    for hours in (0, 23, 25):
        worker = Worker.objects.create(id=uuid4(), host=f"{hours}", process=1)
        Worker.objects.filter(id=worker.id).update(beat_at=timezone.now() - timedelta(hours=hours))
    own.execute(workers.FORGET)
    assert set(Worker.objects.values_list("host", flat=True)) == {"0", "23"}
