"""The scenes that only this version of the code can play, and writing the documents of its schema again."""

from pathlib import Path

from agents.sdk import Holds
from agents.testing import call
from agents.testing.worker import Worker
from agents.tools.waits import wait_for
from runtime.store.signals import PauseSignal
from tests.corpus import scenes
from tests.corpus.scenes import INPUT, PAY, SCENES, Scene, desk

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
    scenes.write(PRESENT, FOLDER)
