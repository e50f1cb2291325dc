"""Two sweepers read one source at the same time: each file, entry and object becomes one event."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import redis
from obstore.store import from_url
from pytest_django import Settings

from runtime.models import Run, WatchedFile
from runtime.store import pool
from runtime.triggers.sources import buckets, folders, streams
from runtime.triggers.sources.reading import read_all
from tests.support.threads import together
from tests.triggers.events.conftest import SAID, Desk, told

pytestmark = pytest.mark.slow

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
