"""kill -9 of the sweeper that reads a folder, a stream or a bucket: each file and entry starts or wakes one run."""

import json
import os
import threading
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
import redis
from django.core.management import call_command
from django.db.models import F
from django.utils import timezone
from obstore.store import from_url
from pytest_django import Settings

from runtime.models import Occurrence, ReceivedEvent, Run, Signal, WaitingCall, WatchedFile
from runtime.store import pool
from runtime.store.tables.trigger_rows import TriggerKind
from runtime.triggers import changes, firing
from runtime.triggers.sources import SOURCES
from runtime.triggers.sources.reading import read_all
from tests.support.engine import ADA
from tests.support.seeds import published
from tests.system.fault_injection.harness import points
from tests.system.fault_injection.harness.loop import die_at
from tests.triggers.events.conftest import HOOK
from tests.triggers.sources.test_waking import SIGNED, arrive, begin

pytestmark = [pytest.mark.faults, pytest.mark.usefixtures("by_hand", "cast", "forks")]

SAID = {"name": "Read", "agent": "hr_onboarding", "event": "read"}


def read() -> None:
    """Read each source and start runs, as a sweeper does."""
    with pool.open_own() as own:
        for source in SOURCES.values():
            read_all(source, own, threading.Event())
        firing.fire_events(own, threading.Event())


def sweep(env: dict[str, str]) -> None:
    """Sweep with these variables, in a process that was forked without them."""
    os.environ.update(env)
    call_command("sweep")


def filled(kind: str, tmp_path: Path, url: str, bucket: str) -> dict[str, str]:
    """Fill a folder, a stream or a bucket with three events, and return what a trigger says for it."""
    texts = [json.dumps({"n": n}) for n in range(3)]
    if kind == "bucket":
        for n, text in enumerate(texts):
            from_url(bucket, client_options={"allow_http": True}).put(f"{n}.json", text.encode())
        return {"bucket": bucket, "mapping": "{{data.json}}"}
    if kind == "stream":
        with redis.Redis.from_url(url) as server:
            for text in texts:
                server.xadd(tmp_path.name, {"data": text})
        return {"stream": tmp_path.name, "mapping": "{{data}}"}
    (tmp_path / "in").mkdir()
    for n, text in enumerate(texts):
        (tmp_path / "in" / f"{n}.json").write_text(text)
    return {"folder": str(tmp_path / "in"), "mapping": "{{data.json}}"}


@pytest.mark.parametrize("point", sorted(points.SOURCES))
def test_a_killed_reader_loses_and_doubles_nothing(
    point: str, live_broker: str, bucket: str, tmp_path: Path, settings: Settings
) -> None:
    published(input_schema={})
    kind = next(kind for kind, source in SOURCES.items() if source.failpoint in point)
    name = f"s-{uuid4()}"
    place = tmp_path / name
    place.mkdir()
    allowed: dict[str, object] = {
        "SIGNOFF_WATCHED_FOLDERS": (place,),
        "SIGNOFF_STREAMS": (name,),
        "SIGNOFF_STREAMS_URL": live_broker,
        "SIGNOFF_WATCHED_BUCKETS": (bucket,),
    }
    for setting, value in allowed.items():
        setattr(settings, setting, value)
    changes.create(
        TriggerKind.EVENT, sent={**SAID, **filled(kind, place, live_broker, bucket)}, actor=ADA
    )
    if kind == "folder":
        read()
        WatchedFile.objects.update(seen_at=F("seen_at") - timedelta(minutes=1))
    env = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    die_at(point, tmp_path, sweep, env, **allowed)
    assert ReceivedEvent.objects.count() == 3 * point.startswith("committed")
    read()
    assert sorted(json.loads(run.input)["n"] for run in Run.objects.all()) == [0, 1, 2]
    if kind == "stream":
        with redis.Redis.from_url(live_broker) as server:
            assert [group["pending"] for group in server.xinfo_groups(name)] == [0]


@pytest.mark.parametrize("point", sorted(points.TRIGGERS))
def test_a_killed_sweeper_wakes_a_run_once(point: str, tmp_path: Path) -> None:
    published(input_schema={})
    made = changes.create(TriggerKind.EVENT, sent=SIGNED, actor=HOOK)
    until = timezone.now() + timedelta(days=2)
    WaitingCall.objects.create(
        run_id=begin(), frame="", call="c", event="hired", match={}, until=until
    )
    arrive(made, "1")
    die_at(point, tmp_path, call_command, "sweep")
    assert Signal.objects.count() == point.startswith("committed")
    read()
    assert (Signal.objects.count(), WaitingCall.objects.count()) == (1, 0)
    assert Occurrence.objects.get().state == "woken"
