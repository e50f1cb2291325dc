"""Every release reads recorded histories and stored words alike.

`python -m tests.stored.test_golden` writes histories with the kinds of events that no recorded one has. A release may
add fields to a state, but every recorded field must be there with the same value.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from runtime.core.documents import codec, continuations, export_file
from runtime.core.documents.blobs import collect_blob_refs
from runtime.core.run import continuation, retries
from runtime.core.run.events import EVENT_TYPES
from runtime.core.run.forks import is_quiescent, without_permissions
from runtime.core.run.planning import AnswerInquiry, plan
from runtime.core.run.reducer import Entry, evolve, make_initial_state
from runtime.core.run.retries import recover
from runtime.core.values import budgets, limits
from runtime.core.values.budgets import Limit
from runtime.core.values.enums import CallState, EffectClass, FailureCause, GateKind, Risk, Verdict
from runtime.core.values.ids import ROOT
from tests.core.run.events import AT
from tests.core.run.walks import Walk

STORED = Path(__file__).parent / "1" / "histories.json"
EVERY = 16  # so many events lie between two whole states
MAX_EVENTS = 70
HISTORIES: list[dict[str, Any]] = json.loads(STORED.read_text())

# They are in journals, continuations, rows and policies of people; a new one may come, none may change.
WORDS: dict[type[StrEnum], str] = {
    continuation.Phase: "new started completed failed cancelling cancelled exported",
    continuation.RunStatus: "queued running waiting suspended paused cancelling completed failed"
    " cancelled exported quarantined",
    continuation.FrameState: "asking retrying acting answered failed closed",
    CallState: "proposed admitted gated refused denied started retrying delegated"
    " returned failed unknown closed",
    EffectClass: "read idempotent transactional write",
    Risk: "low medium high",
    FailureCause: "limit provider network time tool worker setup request",
    GateKind: "approval question in_doubt hold limit version",
    Verdict: "approve deny request_changes answer edit expire happened run_again give_up continue stop",
    Limit: "turns calls tokens micros seconds depth",
}


@pytest.mark.parametrize("number", range(len(HISTORIES)))
def test_a_recorded_history_gives_its_recorded_states(number: int) -> None:
    run, text, seen = (HISTORIES[number][part] for part in ("run", "entry", "seen"))
    for place, (told, written) in enumerate(zip(looked_at(run, text), seen, strict=True), 1):
        for part in written:
            assert contains(told[part], written[part]), f"{part} after event {place}"
    assert codec.encode_entry(codec.decode_entry(text)) == text


def test_every_kind_of_event_was_recorded() -> None:
    entries = [json.loads(history["entry"]) for history in HISTORIES]
    kinds = {event["type"] for entry in entries for event in entry["events"]}
    assert kinds == {kind.__name__ for kind in EVENT_TYPES}


@pytest.mark.parametrize("kind", WORDS, ids=lambda kind: kind.__name__)
def test_the_values_of_stored_enums_are_unchanged(kind: type[StrEnum]) -> None:
    assert all(kind[word.upper()] == word for word in WORDS[kind].split())


def test_numbers_and_names_that_people_rely_on() -> None:
    assert (continuation.MAX_DEPTH, continuation.MAX_REFUSALS) == (16, 5)
    assert (continuation.MAX_DENIALS, continuation.MAX_SAME_REPLIES) == (3, 5)
    assert (budgets.MICROS, budgets.REPLY_TOKENS) == (1_000_000, 4_096)
    most = [1_000_000, 1_000_000, 1_000_000_000_000, 1_000_000_000_000, 31_622_400, 16]
    assert [budgets.MAX[limit] for limit in Limit] == most
    assert {"setup", "request"} == retries.PERMANENT
    assert {"limit", "provider", "reply", "network", "time"} == retries.FALLBACK_CAUSES
    assert limits.JSON_DEPTH == 64
    assert export_file.MAX_BYTES == 67_108_864


def looked_at(run: str, entry: str) -> Iterator[dict[str, Any]]:
    """The view after each event of a history, and the whole state now and then."""
    now = make_initial_state(UUID(run))
    events = codec.decode_entry(entry).events
    for number, event in enumerate(events, start=1):
        now = evolve(now, event)
        seen = _seen(now)
        if number % EVERY == 0 or number == len(events):
            seen["state"] = continuations.build_document(now)
            del seen["state"]["schema"]  # which is that of the release
        yield seen


def contains(told: Any, written: Any) -> bool:
    if isinstance(written, dict) and isinstance(told, dict):
        return all(name in told and contains(told[name], written[name]) for name in written)
    if isinstance(written, list) and isinstance(told, list):
        return len(told) == len(written) and all(map(contains, told, written))
    return bool(told == written) and type(told) is type(written)


def _seen(now: continuation.Continuation) -> dict[str, Any]:
    return {
        "status": [str(continuation.derive_status(now, leased=held)) for held in (True, False)],
        "plan": [_plain(effect) for effect in plan(now)],
        "recovery": [_plain(event) for event in recover(now)],
        "waits": [_plain(wait) for wait in now.waits()],
        "fork": [is_quiescent(now), [_plain(effect) for effect in plan(without_permissions(now))]],
        "path": list(now.path(ROOT, "t")) if now.root else [],
        "refers": sorted(collect_blob_refs(now)),
    }


def _plain(one: Any) -> dict[str, Any]:
    if isinstance(one, AnswerInquiry):  # by the name under which histories have it
        return {"is": "AnswerQuestion", "frame": one.frame, "question": str(one.inquiry)}
    found: dict[str, Any] = json.loads(json.dumps(asdict(one), default=str))
    return {"is": type(one).__name__, **found}


def main() -> None:
    """Record histories with the kinds of events that no recorded one has."""
    entries = [codec.decode_entry(history["entry"]) for history in HISTORIES]
    missing = set(EVENT_TYPES) - {type(event) for entry in entries for event in entry.events}
    seed = 5_000_000 + len(HISTORIES)
    histories = list(HISTORIES)
    while missing:
        seed += 1
        walk = Walk(seed)
        kinds = {type(event) for event in walk.history}
        if len(walk.history) > MAX_EVENTS or not kinds & missing:
            continue
        missing -= kinds
        run = str(walk.now.run)
        entry = codec.encode_entry(Entry(at=AT, events=tuple(walk.history)))
        histories.append({"run": run, "entry": entry, "seen": list(looked_at(run, entry))})
    STORED.write_text(json.dumps(histories, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
