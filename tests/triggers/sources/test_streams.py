"""A stream of a real server: each entry starts one run, once by its id."""

import json
import threading
from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest
import redis
from pytest_django import Settings

from runtime.core.values.limits import MAX_DELIVERY
from runtime.errors import InvalidInput
from runtime.models import ReceivedEvent, Run, TriggerSource
from runtime.store import pool
from runtime.store.tables.trigger_rows import TriggerKind
from runtime.triggers import changes
from runtime.triggers.sources import reading, streams
from tests.support.engine import ADA
from tests.triggers.events.conftest import SAID, Desk, told
from tests.triggers.sources.test_folders import source

MAPPING = {"full_name": "{{data.who}}", "level": 1}
STREAMED = {**SAID, "filter": "", "key": "", "mapping": MAPPING}


class Stream:
    """A stream, as the program that writes to it and the administrator see it."""

    def __init__(self, server: "redis.Redis", name: str, trigger: UUID) -> None:
        self.server, self.name, self.trigger = server, name, trigger
        self.group = f"{streams.GROUP}:{trigger}"

    def add(self, **fields: Any) -> str:
        entry: Any = fields
        made: Any = self.server.xadd(self.name, entry)
        return str(made.decode())

    def look(self) -> None:
        with pool.open_own() as own:
            reading.read_all(streams.SOURCE, own, threading.Event())

    def pending(self) -> int:
        found: Any = self.server.xpending(self.name, self.group)
        return int(found["pending"])

    def states(self) -> list[str]:
        return [state for _, state, _ in told(self.trigger)]


@pytest.fixture
def stream(desk: Desk, broker_url: str, settings: Settings) -> Iterator[Stream]:
    name = f"invoices-{uuid4()}"
    settings.SIGNOFF_STREAMS, settings.SIGNOFF_STREAMS_URL = (name,), broker_url
    with redis.Redis.from_url(broker_url, protocol=2) as server:
        yield Stream(server, name, desk.make(**{**STREAMED, "stream": name}))


def test_an_entry_starts_one_run_by_its_id(desk: Desk, stream: Stream) -> None:
    stream.look()
    assert source(stream.trigger).problem == ""  # no program has written to it yet
    first, second = stream.add(who="Ann"), stream.add(data=json.dumps({"who": "Bob"}))
    stream.look()
    stream.look()
    desk.sweep()
    assert told(stream.trigger) == [(first, "started", ""), (second, "started", "")]
    assert [json.loads(run.input)["full_name"] for run in Run.objects.order_by("id")] == [
        "Ann",
        "Bob",
    ]
    assert stream.pending() == 0
    stream.server.xgroup_destroy(stream.name, stream.group)  # the server lost it
    third = stream.add(who="Cid")
    stream.look()
    desk.sweep()
    assert [name for name, *_ in told(stream.trigger)] == [first, second, third]
    assert stream.pending() == 0


def test_an_entry_whose_reader_died_is_claimed(
    desk: Desk, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "TAKEN", 2)
    stream.look()
    for who in ("Ann", "Bob", "Cid"):
        stream.add(who=who)
    streams.read_entries(stream.server, stream.name, stream.group, 2)  # it died before the commit
    gone = stream.add(who="Dan")
    streams.read_entries(stream.server, stream.name, stream.group, 4)
    stream.server.xdel(stream.name, gone)
    with monkeypatch.context() as patch:
        patch.setattr(streams, "acknowledge", _died)
        stream.look()
    stream.look()
    desk.sweep()
    assert stream.states() == ["started"] * 3
    assert stream.pending() == 0


def _died(*_: object) -> None:
    raise redis.ConnectionError("gone")


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"who": b"\xff"}, "it is not UTF-8"),
        ({"data": "{"}, "its data is no JSON"),
        ({"data": "[1]"}, "its data is no object"),
        ({"data": '{"n": NaN}'}, "its data.n: not a finite number"),
        ({"data": "[" * 60_000}, "its data is no JSON"),
        ({"who": "x" * MAX_DELIVERY}, f"it has {MAX_DELIVERY + 3} bytes, at most {MAX_DELIVERY}"),
    ],
)
def test_an_entry_that_is_no_event_is_refused_and_stops_no_other(
    desk: Desk, stream: Stream, fields: dict[str, Any], why: str
) -> None:
    stream.add(**fields)
    stream.add(who="Ann")
    stream.look()
    stream.look()
    desk.sweep()
    [bad, good] = told(stream.trigger)
    assert (bad[1], good[1]) == ("refused", "started")
    assert bad[2].startswith(why)
    assert stream.pending() == 0


def test_a_stream_that_cannot_be_read_says_why(
    desk: Desk, stream: Stream, settings: Settings
) -> None:
    stream.server.lpush(stream.name, "a list")
    stream.look()
    assert source(stream.trigger).problem.startswith("the stream cannot be read: WRONGTYPE")
    stream.server.delete(stream.name)
    settings.SIGNOFF_STREAMS_URL = "unix:///nowhere/no.sock"
    stream.look()
    assert "No such file or directory" in source(stream.trigger).problem
    settings.SIGNOFF_STREAMS = ()
    stream.look()
    assert source(stream.trigger).problem == "SIGNOFF_STREAMS does not name the stream"
    for given, why in (
        ({"stream": "other"}, "is not allowed: SIGNOFF_STREAMS names none"),
        ({"stream": "a", "folder": "/in"}, "is not for a trigger with a folder"),
    ):
        with pytest.raises(InvalidInput, match=why) as refused:
            desk.make(**{**STREAMED, **given})
        assert refused.value.field == "stream"


def test_a_stream_waits_while_too_many_events_do(
    desk: Desk, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MAX_OPEN", 0)
    stream.add(who="Ann")
    stream.look()
    assert not ReceivedEvent.objects.exists()
    monkeypatch.setattr(reading, "MAX_OPEN", 1)
    stream.look()
    stream.add(who="Cay")
    stream.look()
    assert stream.states() == ["new"]  # no sweeper has looked at it
    monkeypatch.setattr(reading, "MAX_OPEN", 2)
    stream.look()
    assert stream.states() == ["new", "new"]
    changes.change(TriggerKind.EVENT, id=stream.trigger, sent=STREAMED, actor=ADA)
    stream.add(who="Bob")
    stream.look()
    assert stream.states() == ["new", "new"]
    assert not TriggerSource.objects.exists()
