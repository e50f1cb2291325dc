"""The scenes that only this version of the code can play, and writing the documents of its schema again."""

import json
from pathlib import Path
from typing import Any

from agents.sdk import Holds
from agents.testing import call
from agents.testing.worker import Worker
from agents.tools.timers import wait_for
from runtime.core.documents import compression
from runtime.core.documents.codec import BRIEF, SCHEMA, decode_continuation, encode_continuation
from runtime.core.documents.conversations import Conversations
from runtime.store.tables.signals import PauseSignal
from tests.stored import scenarios
from tests.stored.scenarios import INPUT, PAY, SCENES, Scene, desk

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
        spec=lambda: desk(WAIT, PAY, more=[wait_for]), shows=lambda now: bool(now.all_waiting())
    ),
    "message": Scene(
        spec=lambda: desk(PAY),
        shows=lambda now: bool(now.unheard) and bool(now.pending),
        then=_write,
    ),
}


def write() -> None:
    """Write the documents of the present schema; with a brief continuation; and with compressed entries as well."""
    scenarios.write(PRESENT, FOLDER)
    for path in (FOLDER / str(SCHEMA)).glob("*.json"):
        document = json.loads(path.read_text())
        conversations = Conversations()
        for text in document["journal"]:
            conversations.read(text)
        brief = conversations.brief(decode_continuation(document["continuation"]))
        assert brief is not None
        left = encode_continuation(brief.state, brief.told)
        document |= {"schema": BRIEF, "continuation": left}
        _keep(path.name, document)
        short = [compression.stored_text(text) for text in document["journal"]]
        _keep(path.name, document | {"schema": compression.SCHEMA, "journal": short})


def _keep(name: str, document: dict[str, Any]) -> None:
    place = FOLDER / str(document["schema"])
    place.mkdir(exist_ok=True)
    (place / name).write_text(json.dumps(document, indent=1) + "\n")
