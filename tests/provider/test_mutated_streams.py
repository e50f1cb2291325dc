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
IN, OUT = 100, 20  # tokens of each stream
LONGEST_REPLY = 131_072
WHOLE = {
    *("stop", "tool_calls", "function_call", "end_turn", "tool_use", "stop_sequence"),
    *("eos", "eos_token", "complete", "completed", "tool_call"),
}
STOPS = [
    *("stop", "length", "tool_calls", "content_filter", "function_call", "end_turn", "tool_use"),
    *("max_tokens", "stop_sequence", "pause_turn", "refusal", "model_context_window_exceeded"),
    *("compaction", "error", "model_length", "STOP", "eos", "abort", "", None),
]
COUNTS = [
    *(
        b"",
        b"0",
        b"1",
        b"5",
        b"-1",
        b"1.5",
        b"100.5",
        b"true",
        b"null",
        b"NaN",
        b'"x"',
        b"[]",
        b"{}",
    ),
    *(
        rb"\g<2>0",
        rb"\g<2>000",
        b"150",
        b"3000",
        b"131072",
        b"131073",
        b"%d" % 10**12,
        b"%d" % 2**60,
    ),
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


def _count(events: Events, random_: random.Random) -> Events:
    """Change or remove a number of tokens, in one event that has one or in each."""
    told = [number for number, event in enumerate(events) if b"_tokens" in event]
    if not told:
        return events
    chosen = random_.choice([told, [random_.choice(told)]])
    written = random_.choice(COUNTS)
    name = random_.choice([rb"(?:prompt|input)", rb"(?:completion|output)", rb"\w+"])
    value = rb'"\1": ' + written if written else b'"removed": 1'
    count = re.compile(rb'"(' + name + rb'_tokens)": ([\d.]+)')
    return [count.sub(value, one) if n in chosen else one for n, one in enumerate(events)]


def _cached(events: Events, random_: random.Random) -> Events:
    """Say that tokens were read from a cache, or thought."""
    details = random_.choice(
        [
            rb'"prompt_tokens_details": {"cached_tokens": %b}',
            rb'"completion_tokens_details": {"reasoning_tokens": %b}',
            rb'"cache_read_input_tokens": %b',
            rb'"cache_creation_input_tokens": %b',
        ]
    )
    added = b'"usage": {' + details % (random_.choice(COUNTS) or b"60") + b", "
    return [event.replace(b'"usage": {', added) for event in events]


MUTATIONS = [
    *(_cut, _drop, _swap, _repeat, _merge, _keep_alive, _foreign, _foreign),
    *(_count, _count, _cached),
]


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


def _problem(outcome: Outcome, body: bytes, sent: int) -> str:
    """Return the problem with the outcome of a stream, or an empty text. `sent` bytes asked for it."""
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
    return _problem_of_usage(outcome, body, sent)


def _problem_of_usage(outcome: ModelAnswer | ModelFailure, body: bytes, sent: int) -> str:
    """Return the problem with the tokens that count, or an empty text. In truth they were `IN` and `OUT`.

    Only a count of the provider that may be true is further from the truth than an estimate: of thoughts, which are
    not sent.
    """
    counts = [outcome.usage.get(name, 0) for name in ("input_tokens", "output_tokens")]
    if isinstance(outcome, ModelFailure):
        text = outcome.partial
    else:
        text = f"{outcome.text}{[call.args for call in outcome.calls] or ''}"
    known = {int(n) for n in re.findall(rb'_tokens": (\d+)', body.replace(b"true", b"1"))} | {0}
    told = known | {
        one + other for one in known for other in known
    }  # Anthropic's, and its cached ones
    is_estimated = "estimated_tokens" in outcome.usage
    if not all(type(count) is int for count in counts):
        return f"tokens are no whole numbers: {outcome.usage}"
    if outcome.usage and not (is_estimated or told.issuperset(counts)):
        return f"an estimate is not marked: {outcome.usage}"
    if abs(counts[0] - IN) > sent // 4:
        return f"the request is counted wrongly: {outcome.usage}, {sent} bytes"
    may_be_true = counts[1] in told and counts[1] <= LONGEST_REPLY
    if (counts[1] > max(OUT, len(body) // 4) and not may_be_true) or counts[1] < len(text) // 16:
        return f"the reply is counted wrongly: {outcome.usage}"
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
    wire: Wire, without_log: None
) -> None:
    problems: dict[int, str] = {}
    used = 0
    for seed in range(STREAMS):
        model, pieces = _stream(seed)
        frame = frame_of(model)
        wire.answers[:] = [pieces]
        outcome = perform(frame.handler, frame.request())
        sent = len(json.dumps(wire.bodies[-1]))
        problem = _problem(outcome, b"".join(pieces), sent)
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
