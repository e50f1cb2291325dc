"""Finds what a new run remembers of earlier runs of its thread: what people asked, and what the agent answered.

Only texts of runs that its requester may read are taken, from verified journals. The people who steered one of these
runs join the origin of the new one, because its text may steer the agent.
"""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from runtime.control.transaction import atomic
from runtime.core.documents import blobs
from runtime.core.documents.blobs import Blob, blob_of
from runtime.core.run.continuation import Continuation, Phase, merge_people, steered_by
from runtime.core.run.events import Completed, Event, MessageReceived, Remembered, RunStarted
from runtime.core.run.reducer import step
from runtime.core.values.errors import CoreError
from runtime.core.values.limits import MAX_MEMORY
from runtime.errors import KeyMissing, Tampered
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.queries import threads
from runtime.queries.threads import ThreadRun
from runtime.store import runs
from runtime.store.pool import Connection
from runtime.store.tables import journal

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What a run remembers: references for its journal, the texts with their runs, and the people behind them.

    `summary` is the most tokens of the summary that the model makes of them, 0 for none.
    """

    remembered: tuple[Remembered, ...] = ()
    texts: tuple[tuple[UUID, Blob], ...] = ()
    people: tuple[str, ...] = ()
    summary: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Text:
    of: Remembered
    blob: Blob
    size: int


NOTHING = Memory()


def recall_for_run(*, agent: str, thread: str | None, actor: Actor) -> Memory:
    """Return what a run that this actor starts now remembers. Nothing without a thread, or if its agent says so.

    The runs that it remembers are locked against retention until the caller's transaction ends.
    """
    if thread is None:
        return NOTHING
    remembers = wiring.catalogue().remembers(agent)
    if not (max_texts := remembers.texts):
        return NOTHING
    texts: list[_Text] = []
    people: tuple[str, ...] = ()
    with atomic() as connection:
        for run in threads.answered(
            wiring.access().readable_runs(actor), agent=agent, thread=thread
        ):
            if len(texts) >= max_texts:
                break
            if (read := _read(connection, run)) is None:
                continue
            now, run_texts = read
            fitting = _fitting(
                run_texts, max_texts=max_texts - len(texts), characters=_characters_left(texts)
            )
            if not fitting:
                break  # older ones do not fit either
            texts += fitting
            people = merge_people(people, steered_by(now), [now.requester])
    texts.reverse()
    return Memory(
        remembered=tuple(text.of for text in texts),
        texts=tuple((text.of.run, text.blob) for text in texts),
        people=people,
        summary=remembers.summary if texts else 0,
    )


def _characters_left(texts: Iterable[_Text]) -> int:
    return MAX_MEMORY - sum(text.size for text in texts)


def _fitting(texts: list[_Text], *, max_texts: int, characters: int) -> list[_Text]:
    """Return the last texts of a run, the newest first, as far as they fit."""
    fitting: list[_Text] = []
    for text in reversed(texts[-max_texts:]):
        characters -= text.size
        if characters < 0:
            break
        fitting.append(text)
    return fitting


def _read(connection: Connection, run: ThreadRun) -> tuple[Continuation, list[_Text]] | None:
    """Return the state in which a run ended, and its texts. None if it was erased meanwhile, or does not verify."""
    runs.lock_against_retention(connection, run.id)
    try:
        history = journal.history(connection, run.id)
        now, texts = history.start, []
        for sealed, entry in history.entries:
            now = step(now, entry.events, head=sealed.seal.mac, at=entry.at)
            texts += [
                _build_text(run.id, *message)
                for message in _read_messages(now, entry.events, entry.at)
            ]
    except (CoreError, Tampered, KeyMissing) as exc:
        log.error("Run %s: not remembered, its journal does not verify: %s", run.id, exc)
        return None
    ended = now.phase is Phase.COMPLETED and (now.position, now.head) == (run.position, run.head)
    return (now, texts) if ended else None


def _read_messages(
    now: Continuation, events: Iterable[Event], at: datetime
) -> Iterator[tuple[str, str, datetime, str]]:
    for event in events:
        match event:
            case RunStarted():
                yield "asked", event.requester, at, blobs.memory_text(event.input)
            case MessageReceived():
                yield "asked", event.by, at, blobs.memory_text(event.text)
            case Completed():
                yield "answered", now.agent, at, blobs.memory_text(event.output)


def _build_text(run: UUID, kind: str, by: str, at: datetime, text: str) -> _Text:
    blob = blob_of(blobs.memory_body(run, kind, text))
    return _Text(
        of=Remembered(
            run=run,
            kind="asked" if kind == "asked" else "answered",
            by=by,
            at=at,
            digest=blob.digest,
        ),
        blob=blob,
        size=len(text),
    )
