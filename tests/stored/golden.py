"""Recorded histories and their states.

`python -m tests.stored.golden` writes those of the present schema anew, with every kind of event among them; those of
earlier schemas stay as the code of their time wrote them.
Every release must read them the same way. A release may add fields to a state, but every recorded field must be there
with the same value.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any
from uuid import UUID

from runtime.core.continuation import Continuation, status_of
from runtime.core.documents import codec
from runtime.core.documents.blobs import blob_refs
from runtime.core.events import EVENT_TYPES
from runtime.core.ids import ROOT
from runtime.core.machine.forks import quiescent, without_permissions
from runtime.core.machine.planning import plan
from runtime.core.machine.reducer import evolve
from runtime.core.machine.replay import Entry, initial, recover
from tests.core.machine.walks import AT, Walk

FOLDER = Path(__file__).with_name("golden")
EVERY = 16  # so many events lie between two whole states
MAX_EVENTS = 70


def looked_at(run: str, entry: str) -> Iterator[dict[str, Any]]:
    """The view after each event of a history, and the whole state now and then."""
    now = initial(UUID(run))
    events = codec.decode_entry(entry).events
    for number, event in enumerate(events, start=1):
        now = evolve(now, event)
        seen = _seen(now)
        if number % EVERY == 0 or number == len(events):
            seen["state"] = codec.document_of(now)
            del seen["state"]["schema"]  # which is that of the release
        yield seen


def contains(told: Any, written: Any) -> bool:
    """Tell whether the state contains all recorded values."""
    if isinstance(written, dict) and isinstance(told, dict):
        return all(name in told and contains(told[name], written[name]) for name in written)
    if isinstance(written, list) and isinstance(told, list):
        return len(told) == len(written) and all(map(contains, told, written))
    return bool(told == written) and type(told) is type(written)


def _seen(now: Continuation) -> dict[str, Any]:
    return {
        "status": [str(status_of(now, held=held)) for held in (True, False)],
        "plan": [_plain(effect) for effect in plan(now)],
        "recovery": [_plain(event) for event in recover(now)],
        "waits": [_plain(wait) for wait in now.waits()],
        "fork": [quiescent(now), [_plain(effect) for effect in plan(without_permissions(now))]],
        "path": list(now.path(ROOT, "t")) if now.root else [],
        "refers": sorted(blob_refs(now)),
    }


def _plain(one: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(asdict(one), default=str))
    return {"is": type(one).__name__, **found}


def main() -> None:
    missing, seed = set(EVENT_TYPES), 5_000_000
    found: list[dict[str, Any]] = []
    while missing:
        seed += 1
        walk = Walk(seed)
        kinds = {type(event) for event in walk.history}
        if len(walk.history) > MAX_EVENTS or not kinds & missing:
            continue
        missing -= kinds
        run = str(walk.now.run)
        entry = codec.encode_entry(Entry(at=AT, events=tuple(walk.history)))
        found.append({"run": run, "entry": entry, "seen": list(looked_at(run, entry))})
    place = FOLDER / f"{codec.SCHEMA}.json"
    place.write_text(json.dumps(found, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
