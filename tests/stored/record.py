"""The scenes that only this version of the code can play, and writing the documents of its schema again."""

import json
from pathlib import Path

from agents.sdk import Holds
from agents.testing import call
from agents.testing.worker import Worker
from agents.tools.waits import wait_for
from runtime.core.codec import (
    REFERRING,
    SCHEMA,
    decode_continuation,
    decode_entry,
    encode_continuation,
)
from runtime.core.replay import initial, step
from runtime.store.signals import PauseSignal
from tests.stored import scenarios
from tests.stored.scenarios import (
    INPUT,
    PAY,
    SCENES,
    Scene,
    desk,
)

FOLDER = Path(__file__).parent


def _pause(worker: Worker) -> None:
    worker.advance(PauseSignal(id=1000, by="ada", reason="the books are being closed"))


WAIT = call("wait_for", event="paid", match=INPUT, until="2030-01-05T09:00:00Z")


def _write(worker: Worker) -> None:
    worker.write(by="ada", text="it was the wrong order")


PRESENT = SCENES | {
    "hold": Scene(
        spec=lambda: desk(call("price", **INPUT), PAY, holds=Holds(every=1)),
        shows=lambda now: bool(now.pending),
    ),
    "paused": Scene(
        spec=lambda: desk(PAY),
        shows=lambda now: now.paused is not None and bool(now.pending),
        then=_pause,
    ),
    "waiting": Scene(
        spec=lambda: desk(WAIT, PAY, more=[wait_for]),
        shows=lambda now: bool(now.all_waiting()),
    ),
    "message": Scene(
        spec=lambda: desk(PAY),
        shows=lambda now: bool(now.unheard) and bool(now.pending),
        then=_write,
    ),
}


def write() -> None:
    """Write the documents of the present schema, and the same with a continuation that refers to the entries."""
    scenarios.write(PRESENT, FOLDER)
    for path in (FOLDER / str(SCHEMA)).glob("*.json"):
        document = json.loads(path.read_text())
        entries = dict(enumerate(map(decode_entry, document["journal"]), start=1))
        now = initial(decode_continuation(document["continuation"]).run)
        for entry in entries.values():
            now = step(now, entry.events, head="", at=entry.at)
        document |= {"schema": REFERRING, "continuation": encode_continuation(now, entries)}
        place = FOLDER / str(REFERRING)
        place.mkdir(exist_ok=True)
        (place / path.name).write_text(json.dumps(document, indent=1) + "\n")
