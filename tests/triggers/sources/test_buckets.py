"""A watched bucket, and the same objects in a folder: each object starts one run, by its name and ETag."""

import json
import socket
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from obstore.store import LocalStore, from_url
from pytest_django import Settings

from runtime.errors import InvalidInput
from runtime.models import ReceivedEvent, Run, WatchedFile
from runtime.store import pool
from runtime.store.object_stores import bucket
from runtime.store.object_stores.bucket import Listing, Unread
from runtime.store.tables.trigger_rows import TriggerKind
from runtime.triggers import changes
from runtime.triggers.sources import buckets, reading
from tests.support.engine import ADA
from tests.triggers.events.conftest import Desk, told
from tests.triggers.sources.test_folders import FILED, source

LATE = "the store does not answer in time"


class Bucket:
    """A bucket, as the program that writes to it and the administrator see it."""

    def __init__(self, desk: Desk, store: Any, address: str) -> None:
        self.desk, self.store, self.address = desk, store, address
        self.trigger = desk.make(**{**FILED, "bucket": f"{address}/"})

    def put(self, who: str, name: str = "a.json") -> None:
        self.store.put(name, json.dumps({"who": who}).encode())

    def look(self, seconds: float = 0) -> None:
        self.desk.at += timedelta(seconds=seconds)
        with pool.open_own() as own:
            reading.read_all(buckets.SOURCE, own, threading.Event())
        self.desk.sweep()


@pytest.fixture(params=["folder", "s3"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def filled(
    kind: str, request: pytest.FixtureRequest, desk: Desk, settings: Settings, tmp_path: Path
) -> Iterator[Bucket]:
    forget = bucket.open_listing.cache_clear
    if kind == "folder":
        address, store = "s3://folder/in", LocalStore(tmp_path / "in", mkdir=True)
        patch = request.getfixturevalue("monkeypatch")
        patch.setattr(bucket, "open_listing", lambda _: Listing(store))
    else:
        address = request.getfixturevalue("bucket")
        store = from_url(address, client_options={"allow_http": True})  # type: ignore[assignment]
    settings.SIGNOFF_WATCHED_BUCKETS = (address,)
    yield Bucket(desk, store, address)
    forget()


def test_an_object_starts_one_run_by_its_name_and_etag(filled: Bucket) -> None:
    filled.put("Ann")
    filled.put("Bob", "below/b.json")
    filled.look()
    filled.look()
    assert told(filled.trigger) == [("a.json", "started", ""), ("below/b.json", "started", "")]
    assert sorted(json.loads(run.input)["full_name"] for run in Run.objects.all()) == ["Ann", "Bob"]
    assert (source(filled.trigger).kind, source(filled.trigger).place) == ("bucket", filled.address)
    filled.put("Cid")
    filled.store.delete("below/b.json")
    filled.look()
    filled.look()
    assert [name for name, *_ in told(filled.trigger)] == ["a.json", "below/b.json", "a.json"]
    assert WatchedFile.objects.filter(gone_at=None).values_list("name", flat=True).get() == "a.json"


def test_the_data_of_an_object_and_one_of_a_gigabyte(
    kind: str, filled: Bucket, tmp_path: Path
) -> None:
    said = {**FILED, "mapping": {"full_name": "{{data}}", "level": 1}}
    changes.change(
        TriggerKind.EVENT, id=filled.trigger, sent={**said, "bucket": filled.address}, actor=ADA
    )
    if kind == "folder":
        with (tmp_path / "in" / "a.json").open("wb") as made:
            made.truncate(1024**3)
    filled.store.put("b.txt", "Grüße".encode())
    filled.store.put("c.json", b"{")
    filled.look()
    *shown, bad = told(filled.trigger)
    assert bad[:2] == ("c.json", "refused")
    assert bad[2].startswith("it is no JSON")
    assert all(state == "failed" for _, state, _ in shown)  # a name is no object
    facts = {one.event_id: json.loads(one.data) for one in ReceivedEvent.objects.all()}
    assert facts["b.txt"]["text"] == "Grüße"
    assert facts["b.txt"]["address"] == f"{filled.address}/b.txt"
    if kind == "folder":
        assert (facts["a.json"]["size"], "json" in facts["a.json"]) == (1024**3, False)


@pytest.mark.parametrize("kind", ["s3"], indirect=True)
def test_a_large_bucket_is_listed_page_by_page(
    filled: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket.open_listing(filled.address), "max_objects", 2)
    monkeypatch.setattr(buckets, "TAKEN", 1)
    for n in range(5):
        filled.put("Ann", f"{n}.json")
    filled.look()
    assert len(told(filled.trigger)) == 5
    filled.store.delete("1.json")
    filled.put("Bob", "00.json")  # before the others
    filled.look()
    assert [name for name, *_ in told(filled.trigger)][5:] == ["00.json"]
    assert WatchedFile.objects.filter(gone_at=None).count() == 5
    monkeypatch.setattr(reading, "MAX_OPEN", 0)
    filled.put("Dan", "5.json")
    filled.look()
    assert len(told(filled.trigger)) == 6


@pytest.mark.parametrize("kind", ["s3"], indirect=True)
def test_a_store_that_answers_late_loses_nothing_and_holds_up_no_other(
    filled: Bucket, desk: Desk, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = "s3://late/in"
    settings.SIGNOFF_WATCHED_BUCKETS += (address,)
    late = desk.make(**{**FILED, "bucket": address})
    asked = list[str]()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setattr(bucket, "ANSWER", "200ms")
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with monkeypatch.context() as patch:
            patch.setenv("AWS_ENDPOINT_URL", url)
            unwell = bucket.open_listing(address)
        find = Listing.after

        def after(self: Listing, cursor: str) -> Any:
            asked.append("late" if self is unwell else "other")
            return find(self, cursor)

        monkeypatch.setattr(Listing, "after", after)
        filled.put("Ann")
        filled.look()
        filled.look(30)
        assert source(late).problem == f"the bucket cannot be read: {LATE}"
        assert [name for name, *_ in told(filled.trigger)] == ["a.json"]
        assert asked.count("late") == 1  # and again after a minute, behind the others
        filled.look(31)
        assert (asked.count("late"), asked[-1]) == (2, "late")
    healthy = bucket.open_listing(filled.address)
    monkeypatch.setattr(bucket, "open_listing", lambda _: healthy)
    filled.look(61)
    assert (source(late).problem, [name for name, *_ in told(late)]) == ("", ["a.json"])


def test_an_object_that_cannot_be_read_is_tried_again_or_refused(
    filled: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.json", "b.json", "c.json"):
        filled.put("Ann", name)
    reading = Listing.read

    def read(self: Listing, one: Any, most: int) -> bytes | None:
        if one.name != "a.json":
            raise Unread("it said no", passes=one.name == "c.json")
        return reading(self, one, most)

    with monkeypatch.context() as patch:
        patch.setattr(Listing, "read", read)
        filled.look()
    assert told(filled.trigger) == [
        ("a.json", "started", ""),
        ("b.json", "refused", "it cannot be read: it said no"),
    ]
    assert source(filled.trigger).problem == "c.json cannot be read: it said no"
    filled.look(61)
    assert told(filled.trigger)[2:] == [("c.json", "started", "")]
    assert source(filled.trigger).problem == ""


@pytest.mark.parametrize("kind", ["folder"], indirect=True)
@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("folder/in", "must start with s3://"),
        ("s3://folder//in", "must start with s3://"),
        ("s3://folder/in/../x", "must start with s3://"),
        ("file:///etc", "must start with s3://"),
        ("s3://other", "must be s3://folder/in, or below"),
        ("s3://folder/in2", "must be s3://folder/in, or below"),
    ],
)
def test_a_bucket_that_is_not_allowed_names_the_field(
    desk: Desk, filled: Bucket, settings: Settings, given: str, why: str
) -> None:
    with pytest.raises(InvalidInput, match=why) as refused:
        desk.make(**{**FILED, "bucket": given})
    assert refused.value.field == "bucket"
    settings.SIGNOFF_WATCHED_BUCKETS = ()
    filled.put("Ann")
    filled.look()
    assert source(filled.trigger).problem == "SIGNOFF_WATCHED_BUCKETS does not name the bucket"
    assert told(filled.trigger) == []
