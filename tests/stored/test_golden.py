"""Every release reads recorded histories and stored words alike."""

import json
from enum import StrEnum

import pytest

from runtime.core import budgets, continuation, enums, limits
from runtime.core.budgets import Limit
from runtime.core.continuation import CallState, FrameState, Phase, RunStatus
from runtime.core.documents import budget_text, codec, compression, export_file
from runtime.core.enums import EffectClass, FailureCause, GateKind, Risk, Verdict
from runtime.core.events import EVENT_TYPES
from runtime.core.machine import retries
from tests.stored.golden import FOLDER, contains, looked_at

WRITTEN = {
    f"{path.stem}-{number}": history
    for path in sorted(FOLDER.glob("*.json"))
    for number, history in enumerate(json.loads(path.read_text()))
}

# They are in journals, continuations, rows and policies of people; a new one may come, none may change.
WORDS: dict[type[StrEnum], str] = {
    Phase: "new started completed failed cancelling cancelled exported",
    RunStatus: "queued running waiting suspended paused cancelling completed failed cancelled exported"
    " quarantined",
    FrameState: "asking retrying acting answered failed closed",
    CallState: "proposed admitted gated refused denied started retrying delegated returned failed unknown"
    " closed",
    EffectClass: "read idempotent transactional write",
    Risk: "low medium high",
    FailureCause: "limit provider network time tool worker setup request",
    GateKind: "approval in_doubt hold limit version",
    Verdict: "approve deny expire happened run_again give_up continue stop",
    Limit: "turns calls tokens micros seconds depth",
}


@pytest.mark.parametrize("name", WRITTEN)
def test_a_recorded_history_gives_its_recorded_states(name: str) -> None:
    run, text, seen = (WRITTEN[name][part] for part in ("run", "entry", "seen"))
    for place, (told, written) in enumerate(zip(looked_at(run, text), seen, strict=True), 1):
        for part in written:
            assert contains(told[part], written[part]), f"{part} after event {place}"
    entry = codec.decode_entry(text)
    assert codec.decode_entry(codec.encode_entry(entry)) == entry


def test_every_kind_of_event_was_written_in_the_present_schema() -> None:
    entries = [json.loads(one["entry"]) for one in WRITTEN.values()]
    present = [entry for entry in entries if entry["schema"] == codec.SCHEMA]
    kinds = {event["type"] for entry in present for event in entry["events"]}
    assert kinds == {kind.__name__ for kind in EVENT_TYPES}


@pytest.mark.parametrize("kind", WORDS, ids=lambda kind: kind.__name__)
def test_the_values_of_stored_enums_are_unchanged(kind: type[StrEnum]) -> None:
    assert all(kind[word.upper()] == word for word in WORDS[kind].split())


def test_numbers_and_names_that_people_rely_on() -> None:
    assert (continuation.MAX_DEPTH, continuation.MAX_REFUSALS) == (16, 5)
    assert (budgets.MICROS, budgets.REPLY_TOKENS) == (1_000_000, 4_096)
    assert budget_text.MAX == {
        Limit.TURNS: 1_000_000,
        Limit.CALLS: 1_000_000,
        Limit.TOKENS: 1_000_000_000_000,
        Limit.MICROS: 1_000_000_000_000,
        Limit.SECONDS: 31_622_400,
        Limit.DEPTH: 16,
    }
    units = "turns, tool calls, tokens, US dollars, active seconds, nesting levels"
    assert [budget_text.unit_of(limit) for limit in Limit] == units.split(", ")
    assert {"setup", "request"} == retries.PERMANENT
    assert {"limit", "provider", "network", "time"} == retries.FALLBACK_CAUSES
    assert list(codec.HISTORY) == list(range(1, compression.SCHEMA + 1))
    assert limits.JSON_DEPTH == 64
    assert export_file.MAX_BYTES == 67_108_864
    of_frame = dict.fromkeys(("hold", "limit", "version"), ("continue", "stop"))
    assert of_frame.keys() == enums.FRAME_GATES
    assert {
        "approval": ("approve", "deny"),
        "in_doubt": ("happened", "run_again", "give_up"),
        **of_frame,
    } == enums.VERDICTS
