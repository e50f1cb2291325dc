"""Events of sources and webhooks wake the run that waits for them, once; or start one if none is there."""

import json
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
import redis
from obstore.store import from_url
from pytest_django import Settings

from approvals.people import accounts
from approvals.rules.policy import Group
from runtime.control.start import start
from runtime.core.values.limits import MAX_EVENT_DATA
from runtime.errors import Forbidden, InvalidInput
from runtime.models import Run, Signal, WaitingCall, WatchedFile
from runtime.ports.access import Actor
from runtime.store import pool
from runtime.store.tables import trigger_rows
from runtime.store.tables.trigger_rows import TriggerKind
from runtime.triggers import changes, events, trigger
from runtime.triggers.sources import buckets, folders, reading, streams
from runtime.triggers.sources.reading import read_all
from tests.support.engine import ADA
from tests.support.threads import together
from tests.triggers.events.conftest import HOOK, SAID, Desk, told

SIGNED = {
    **SAID,
    "filter": "",
    "key": "",
    "mapping": {"full_name": "{{data.who}}", "level": 1},
    "business_key": "'hire ' + data.who",
    "wakes": "first",
}


def arrive(made: UUID, id: str, **data: Any) -> None:
    """Keep an event of the trigger's source, as the sweeper that reads the source does."""
    with pool.join_transaction() as connection:
        row = trigger_rows.read(connection, made)
        assert row is not None
        one = trigger.read_signed(connection, row).definition
        kept = {"source": f"webhook:{made}", "id": id, "key": ["webhook", id]}
        reading.keep(connection, made, one, **kept, data={"who": "Ann", **data})  # type: ignore[arg-type]


def begin(who: str = "Ann", actor: Actor = ADA) -> UUID:
    said = {"full_name": who, "level": 1}
    key = f"hire {who}"
    return start(agent="hr_onboarding", input=said, business_key=key, actor=actor).run


def wait(run: UUID, desk: Desk, call: str = "c", **match: Any) -> None:
    until = desk.at + timedelta(days=2)
    WaitingCall.objects.create(
        run_id=run, frame="", call=call, event="hired", match=match, until=until
    )


def results() -> list[Any]:
    return [json.loads(one.body)["result"] for one in Signal.objects.order_by("id")]


def test_an_event_wakes_the_run_of_its_business_key_once(desk: Desk) -> None:
    accounts.create_person(username="ed", password=None, groups=[Group.ADMINS])
    made = desk.make(actor=HOOK, **SIGNED)
    changes.change(TriggerKind.EVENT, id=made, sent=SIGNED, actor=Actor(person="ed"))
    run, other = begin(), begin("Bob")
    arrive(made, "1", by="Bo")
    desk.sweep()
    assert told(made) == [("1", "waiting", "")]  # the run is there, and does not wait yet
    wait(other, desk)
    wait(run, desk, by="Eve")
    desk.sweep(2)
    assert told(made)[0][1] == "waiting"
    wait(run, desk, "d", by="Bo")
    desk.sweep(2)
    desk.sweep(2)
    assert told(made) == [("1", "woken", "")]
    assert results() == [{"event": "hired", "id": "1", "data": {"who": "Ann", "by": "Bo"}}]
    assert sorted((one.run_id, one.call) for one in WaitingCall.objects.all()) == sorted(
        [(other, "c"), (run, "c")]
    )
    assert Run.objects.get(id=run).origin == ["ada", "admin", "ed"]  # both decide nothing
    assert Run.objects.count() == 2
    arrive(made, "2", who="Cid")
    arrive(made, "3", who="Cid")
    desk.sweep()
    desk.sweep(2)
    assert [state for _, state, _ in told(made)] == ["woken", "started", "waiting"]
    wait(Run.objects.get(business_key="hire Cid").id, desk)
    desk.sweep(2)
    assert [state for _, state, _ in told(made)] == ["woken", "started", "woken"]


def test_events_of_one_run_wake_it_in_order_also_by_its_id(desk: Desk) -> None:
    by_id = {**SIGNED, "wakes": "only", "business_key": "data.run", "mapping": {}}
    made = desk.make(actor=HOOK, **by_id)
    run = begin()
    for n in range(2):
        arrive(made, str(n), run=str(run), n=n)
    for call in ("c", "d"):
        wait(run, desk, call)
        desk.sweep(2)
    assert [found["data"]["n"] for found in results()] == [0, 1]
    arrive(made, "2", run="no run")
    desk.sweep(2)
    desk.sweep(events.EVENT_KEPT.total_seconds() + 60)
    assert told(made)[-1] == ("2", "skipped", events.UNMET)
    assert Run.objects.count() == 1


def test_two_sweepers_wake_a_run_once(desk: Desk) -> None:
    made = [desk.make(actor=HOOK, **SIGNED) for _ in range(3)]
    run = begin()
    wait(run, desk)
    for one in made:
        arrive(one, "1")
    together([desk.sweep] * 2)
    states = sorted(told(one)[0][1] for one in made)
    assert (states, len(results())) == (["waiting", "waiting", "woken"], 1)


def test_an_event_that_may_not_wake_fails_and_says_why(desk: Desk) -> None:
    made = desk.make(actor=HOOK, **SIGNED)
    for name, group in {"dora": Group.REQUESTERS, "ed": Group.ADMINS}.items():
        accounts.create_person(username=name, password=None, groups=[group])
    runs = [begin(), begin(actor=Actor(person="dora"))]
    for run in runs:
        wait(run, desk)
    arrive(made, "two")
    desk.sweep()
    assert told(made)[0][1:] == ("failed", "business_key: 2 runs wait for it; it must say which")
    WaitingCall.objects.filter(run=runs[1]).delete()
    arrive(made, "large", text="x" * MAX_EVENT_DATA)
    desk.sweep(2)
    assert told(made)[1][1] == "failed"
    assert f"send at most {MAX_EVENT_DATA}" in told(made)[1][2]
    accounts.set_groups("admin", [Group.REQUESTERS], actor="ed")
    arrive(made, "right")
    desk.sweep(2)
    accounts.set_groups("admin", [Group.ADMINS], actor="ed")
    assert told(made)[2][1:] == ("failed", "admin does not have the right events:send.")
    desk.send(who="Ann")  # it ended the wait itself
    desk.sweep(2)
    assert told(made)[3][1:] == ("skipped", events.SENT)
    assert len(results()) == 1


def test_a_trigger_that_wakes_needs_the_right_and_a_business_key(desk: Desk) -> None:
    with pytest.raises(Forbidden):
        desk.make(**SIGNED)
    made = desk.make(**{**SIGNED, "wakes": ""})
    with pytest.raises(Forbidden):
        changes.change(TriggerKind.EVENT, id=made, sent=SIGNED, actor=ADA)
    for field, value in {
        "wakes": "all",
        "business_key": "",
        "key": "data.who",
        "debounce": 5,
        "at_once_per_key": 1,
    }.items():
        with pytest.raises(InvalidInput) as refused:
            desk.make(actor=HOOK, **{**SIGNED, field: value})
        assert refused.value.field == field


# Two readers


MANY = 120  # more than two transactions take
PLAIN = {**SAID, "filter": "", "key": "", "mapping": {"full_name": "{{id}}", "level": 1}}

Fill = Callable[[pytest.FixtureRequest, Settings], dict[str, str]]


def _folder(request: pytest.FixtureRequest, settings: Settings) -> dict[str, str]:
    place: Path = request.getfixturevalue("tmp_path")
    settings.SIGNOFF_WATCHED_FOLDERS = (place,)
    for n in range(MANY):
        (place / f"{n}.txt").write_text(str(n))
    return {"folder": str(place)}


def _stream(request: pytest.FixtureRequest, settings: Settings) -> dict[str, str]:
    url, name = request.getfixturevalue("broker_url"), f"two-{uuid4()}"
    settings.SIGNOFF_STREAMS, settings.SIGNOFF_STREAMS_URL = (name,), url
    with redis.Redis.from_url(url, protocol=2) as server:
        for n in range(MANY):
            server.xadd(name, {"n": n})
    return {"stream": name}


def _bucket(request: pytest.FixtureRequest, settings: Settings) -> dict[str, str]:
    address = request.getfixturevalue("bucket")
    settings.SIGNOFF_WATCHED_BUCKETS = (address,)
    store = from_url(address, client_options={"allow_http": True})
    for n in range(MANY):
        store.put(f"{n}.txt", b"")
    return {"bucket": address}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fill", "reader"), [(_folder, folders), (_stream, streams), (_bucket, buckets)]
)
def test_two_sweepers_at_once_make_one_event_of_each(
    desk: Desk, request: pytest.FixtureRequest, settings: Settings, fill: Fill, reader: Any
) -> None:
    made = desk.make(**{**PLAIN, **fill(request, settings)})
    start = threading.Barrier(2)

    def sweep() -> None:
        for _ in range(4):
            start.wait(30)
            with pool.open_own() as own:
                read_all(reader.SOURCE, own, threading.Event())
            desk.sweep(2)

    together([sweep] * 2)
    desk.sweep(2)
    found = told(made)
    runs = Run.objects.values_list("input", flat=True)
    assert (len(found), {state for _, state, _ in found}) == (50, {"started"})  # of a page
    assert (len(runs), len(set(runs))) == (MANY, MANY)
    assert all(file.done for file in WatchedFile.objects.all())
