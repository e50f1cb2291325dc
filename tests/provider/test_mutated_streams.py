"""Streams of both protocols, changed at random: cut, split, reordered, merged, repeated, with foreign fields.

Seed n always gives the same stream. A failure names its seeds: `_stream(seed)` returns what the client received.
"""

import json
import logging
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pytest_django import Settings

from runtime.execution.effects.perform import perform
from runtime.ports.effects import ModelAnswer, ModelFailure, Outcome
from tests.provider.test_odd_replies import PIECES
from tests.support.provider.wire import (
    Wire,
    anthropic,
    call_part,
    chunk,
    frame_of,
    openai,
    text_part,
    use_part,
)
from tests.system.fault_injection.harness.figures import say as tell

STREAMS = 2_000
WHOLE = {
    *("stop", "tool_calls", "function_call", "end_turn", "tool_use", "stop_sequence"),
    *("eos", "eos_token", "complete", "completed", "tool_call"),
}
STOPS = [
    *("stop", "length", "tool_calls", "content_filter", "function_call", "end_turn", "tool_use"),
    *("max_tokens", "stop_sequence", "pause_turn", "refusal", "model_context_window_exceeded"),
    *("compaction", "error", "model_length", "STOP", "eos", "abort", "", None),
]
FOREIGN = [None, 5, -1, 2**60, 1.5, True, "x", "\ud83d", "\0", "", [], {}, ["x"], {"x": [None]}]
LETTER = {"text": "Dear customer, we sent it 😀."}
Events = list[bytes]


def _recorded(random_: random.Random, stop: str | None) -> Events:
    """Return the events of one of the replies, unchanged."""
    send, ping = call_part("send", LETTER), call_part("ping", {}, "call_2")
    pieces = [chunk({"tool_calls": [call_part("send", piece)]}) for piece in PIECES]
    made: list[Callable[[], Events]] = [
        lambda: openai("It is on its way.", finish=stop),
        lambda: openai("I send it.", [send, ping], stop),
        lambda: openai(None, [ping], stop, None, reasoning_content="Hm."),
        lambda: [chunk({"content": "So"}), *pieces, *openai(None, finish=stop)],
        lambda: openai(None, finish=stop, refusal="I will not."),
        lambda: anthropic(text_part("It is on its way."), stop=stop),
        lambda: anthropic(text_part("I send it."), use_part("send", LETTER), stop=stop),
        lambda: anthropic(use_part("ping", {}), use_part("send", LETTER, "toolu_2"), stop=stop),
    ]
    return random_.choice(made)()


def _cut(events: Events, random_: random.Random) -> Events:
    whole = b"".join(events)
    return [whole[: random_.randrange(len(whole))]]


def _drop(events: Events, random_: random.Random) -> Events:
    place = random_.randrange(len(events))
    return events[:place] + events[place + 1 :]


def _swap(events: Events, random_: random.Random) -> Events:
    changed = list(events)
    one, other = (random_.randrange(len(events)) for _ in range(2))
    changed[one], changed[other] = changed[other], changed[one]
    return changed


def _repeat(events: Events, random_: random.Random) -> Events:
    place = random_.randrange(len(events))
    return events[: place + 1] + events[place:]


def _merge(events: Events, random_: random.Random) -> Events:
    place = random_.randrange(len(events))
    return [*events[:place], events[place].rstrip(b"\n") + b"\n", *events[place + 1 :]]


def _keep_alive(events: Events, random_: random.Random) -> Events:
    place = random_.randrange(len(events))
    line = random_.choice([b": x\n\n", b"event: ping\n\n", b"retry: 1\n\n", b"data:\n\n", b"\r\n"])
    return [*events[:place], line, *events[place:]]


def _foreign(events: Events, random_: random.Random) -> Events:
    """Add a field to an event, or replace one, at any depth."""
    number = random_.randrange(len(events))
    head, data, rest = events[number].partition(b"data: ")
    try:
        document = json.loads(rest)
    except ValueError:
        return events
    value: Any = document
    while isinstance(value, dict | list) and value:
        keys = list(value) if isinstance(value, dict) else range(len(value))
        key: Any = random_.choice(keys)
        child = value[key]
        if random_.random() < 0.4 or not isinstance(child, dict | list):
            is_new = isinstance(value, dict) and random_.random() < 0.3
            place: Any = "foreign" if is_new else key
            value[place] = random_.choice(FOREIGN)
            break
        value = child
    changed = head + data + json.dumps(document).encode() + b"\n\n"
    return [*events[:number], changed, *events[number + 1 :]]


MUTATIONS = [_cut, _drop, _swap, _repeat, _merge, _keep_alive, _foreign, _foreign]


def _stream(seed: int) -> tuple[str, list[bytes]]:
    """Return the model, and the pieces that its client receives."""
    random_ = random.Random(seed)
    events = _recorded(random_, random_.choice(STOPS))
    model = "claude:m" if b"message_start" in events[0] else "fake:m"
    for _ in range(random_.randrange(4)):
        mutated = random_.choice(MUTATIONS)(events, random_)
        events = mutated or events
    body = b"".join(events)
    cuts = sorted(random_.randrange(len(body) + 1) for _ in range(random_.randrange(6)))
    return model, [body[i:j] for i, j in zip([0, *cuts], [*cuts, len(body)], strict=True)]


def _problem(outcome: Outcome, body: bytes) -> str:
    """Return the problem with the outcome of a stream, or an empty text."""
    stops = re.findall(rb'"(?:finish|stop)_reason": "([^"]*)"', body)
    whole = [stop for stop in stops if stop.decode().lower() in WHOLE]
    match outcome:
        case ModelFailure():
            if not outcome.retryable:
                return f"the run would fail: {outcome.error}"
            if outcome.partial.strip() and not outcome.usage.get("input_tokens"):
                return "a failed attempt is not paid for"
        case ModelAnswer():
            if not whole:
                return f"a reply that stopped for {stops} was used"
            if not (outcome.calls or outcome.text.strip()):
                return "an empty reply was used"
        case _:
            return f"there is an unexpected outcome: {outcome}"
    given, output = outcome.usage.get("input_tokens", 0), outcome.usage.get("output_tokens", 0)
    estimate = len(body) // 4
    is_told = b'"foreign"' in body or not 0 <= given <= 100 or not 0 <= output <= max(20, estimate)
    usages = re.findall(rb'"(?:prompt|completion|input|output)_tokens": ([^,}]*)', body)
    if is_told and set(usages) <= {b"100", b"20", b"1"} and (given > 100 or output > estimate):
        return f"tokens are counted wrongly: {outcome.usage}"
    return ""


def _problem_of_history(body: dict[str, Any]) -> str:
    """Return what a provider would refuse in a request, or an empty text."""
    blocks = [b for one in body["messages"] for b in one["content"] or () if isinstance(b, dict)]
    calls = [call for one in body["messages"] for call in one.get("tool_calls") or ()]
    names = [call["function"]["name"] for call in calls]
    names += [block["name"] for block in blocks if block["type"] == "tool_use"]
    ids = [one["id"] for one in [*calls, *blocks] if "id" in one]
    texts = [block["text"] for block in blocks if block["type"] == "text"]
    if not all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", one) for one in [*names, *ids]):
        return f"the history has the names {names} and ids {ids}"
    if len(set(ids)) < len(ids) or not all(text.strip() for text in texts):
        return f"the history has the ids {ids} and texts {texts}"
    return ""


@pytest.fixture
def without_log() -> Iterator[None]:
    """Log none of the failed attempts."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.filterwarnings("ignore")  # of the model layer, about fields of another type
def test_no_mutation_of_a_stream_starts_a_half_call_or_fails_a_run(
    monkeypatch: pytest.MonkeyPatch, settings: Settings, without_log: None
) -> None:
    wire = Wire(monkeypatch, settings)
    problems: dict[int, str] = {}
    used = 0
    for seed in range(STREAMS):
        model, pieces = _stream(seed)
        frame = frame_of(model)
        wire.answers[:] = [pieces]
        outcome = perform(frame.handler, frame.request())
        problem = _problem(outcome, b"".join(pieces))
        if isinstance(outcome, ModelAnswer) and not problem:
            used += 1
            frame.take(outcome)
            frame.settle(*[("returned", "")] * len(outcome.calls))
            for frame.model in ("fake:m", "claude:m")[seed % 2 :][:1]:
                wire.answers[:] = [[]]
                perform(frame.handler, frame.request())
                problem = _problem_of_history(wire.bodies[-1])
        if problem:
            problems[seed] = problem
    tell(f"FIGURES mutated streams: {STREAMS}, {used} of them whole")
    assert STREAMS / 10 < used < STREAMS * 9 / 10
    assert sorted(problems.items()) == []
