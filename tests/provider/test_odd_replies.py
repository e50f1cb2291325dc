"""What providers send besides whole replies in good order, and what goes back to them: nothing of it fails a run."""

import gzip
import json
import re
from dataclasses import replace
from typing import Any

import pytest
from httpx2 import Response
from pytest_django import Settings

from agents.sdk import RetryPolicy, tool
from agents.tool_calls import read_arguments
from runtime.core.values.enums import FailureCause
from runtime.core.values.limits import MAX_SUMMARY
from runtime.execution.effects.perform import perform
from runtime.ports.agents import CallRejected
from runtime.ports.effects import ModelAnswer, ModelFailure
from tests.support.engine import engine_of, events
from tests.support.provider.wire import (
    DONE,
    Pieces,
    Summary,
    Wire,
    anthropic,
    call_part,
    chunk,
    frame_of,
    message,
    openai,
    ping,
    ship,
    text_part,
    use_part,
)

LETTER = {"text": "Dear customer, we"}
SEND, USE = call_part("send", LETTER), use_part("send", LETTER)
BIG = {"order": 2512292042121000001}
REPLY, NETWORK = FailureCause.REPLY, FailureCause.NETWORK


@pytest.mark.parametrize(
    ("model", "stops"),
    [
        ("fake:m", ["length", "max_tokens", "model_length", "error", "content_filter", "Tired"]),
        ("claude:m", ["max_tokens", "model_context_window_exceeded", "refusal", "pause_turn"]),
    ],
)
def test_a_reply_that_is_not_whole_has_no_calls_and_no_answer(
    wire: Wire, model: str, stops: list[str]
) -> None:
    is_claude = model == "claude:m"
    for stop in stops:
        wire.answers += [
            anthropic(USE, stop=stop) if is_claude else openai(calls=[SEND], finish=stop),
            anthropic(text_part("Half"), stop=stop) if is_claude else openai("Half", finish=stop),
        ]
        call, text = frame_of(model).fault(), frame_of(model, output=Summary).fault()
        for fault in (call, text):
            assert (fault.retryable, fault.cause) == (True, REPLY)
            assert stop in fault.error
            assert fault.usage == {"input_tokens": 100, "output_tokens": 20}
        assert text.partial == "Half"


@pytest.mark.parametrize(
    ("model", "answer"),
    [
        ("fake:m", openai(calls=[SEND], finish=None)),
        ("claude:m", anthropic(USE, stop=None)),
        ("plain_claude:m", message(USE, stop=None)),
    ],
)
def test_a_reply_without_a_reason_to_stop_broke_off(wire: Wire, model: str, answer: Any) -> None:
    wire.answers.append(answer)
    fault = frame_of(model).fault()
    assert (fault.retryable, fault.cause, fault.usage["input_tokens"]) == (True, NETWORK, 100)


def test_people_are_asked_about_a_model_whose_every_reply_is_cut(
    by_hand: None, everything_permitted: None, wire: Wire, settings: Settings
) -> None:
    settings.SIGNOFF_OUTAGE_SECONDS = 0.0
    wire.answers += [openai(calls=[SEND], finish="length")] * 2
    clerk = frame_of("fake:m", retry=RetryPolicy(attempts=2, base=0.0, ceiling=0.0)).handler
    with engine_of(clerk.registry) as engine:
        run = engine.begin("clerk", {})
        (gate,) = engine.approvals.requests
    retries = [one for one in events(run.id) if one["type"] == "RetryScheduled"]
    assert (run.status, gate.kind, len(wire.bodies)) == ("suspended", "hold", 2)
    assert "raise max_tokens" in gate.sentence
    assert [one["usage"]["output_tokens"] for one in retries] == [20, 20]
    assert "the limit of tokens" in wire.bodies[1]["messages"][-1]["content"]
    assert not any(one["type"] == "ToolStarted" for one in events(run.id))


@pytest.mark.parametrize("finish", ["stop", "tool_calls", "function_call", "STOP", "tool-calls"])
def test_every_reason_that_means_whole_makes_calls(wire: Wire, finish: str) -> None:
    wire.answers.append(openai(calls=[SEND], finish=finish))
    assert frame_of("fake:m").ask().calls[0].args == LETTER


def test_a_model_is_told_that_its_reply_was_too_long(wire: Wire) -> None:
    wire.answers += [openai(calls=[SEND], finish="length"), openai(None, refusal="I will not.")]
    fault = frame_of("fake:m").fault()
    assert "raise max_tokens" in fault.error
    assert fault.tokens == 20
    refused = frame_of("fake:m").fault()
    assert (refused.partial, refused.tokens) == ("I will not.", 0)
    assert "refused to answer" in refused.error


def test_the_beginning_of_a_summary_of_the_memory_is_kept(wire: Wire) -> None:
    wire.answers.append(openai("Order A-1 was", finish="length"))
    frame = frame_of("fake:m")
    frame.messages[0]["memory"] = ()
    answer = perform(frame.handler, replace(frame.request(), summary=True, memory_tokens=50))
    assert isinstance(answer, ModelAnswer)
    assert answer.text == "Order A-1 was"


def test_a_summary_that_is_too_long_is_a_failed_attempt(wire: Wire) -> None:
    wire.answers.append(openai("x" * (MAX_SUMMARY + 1)))
    frame = frame_of("fake:m")
    fault = perform(frame.handler, replace(frame.request(), summary=True))
    assert isinstance(fault, ModelFailure)
    assert (fault.retryable, fault.cause, fault.usage["output_tokens"]) == (True, REPLY, 16385)


@pytest.mark.parametrize(
    "answer",
    [
        openai(None),
        openai(""),
        openai(" \n"),
        openai(None, reasoning_content="I should answer."),
        openai(None, finish="tool_calls"),
        openai("I pay now.", finish="tool_calls"),
        openai(None, finish="content_filter"),
    ],
)
def test_a_reply_that_says_nothing_is_a_failed_attempt(wire: Wire, answer: list[bytes]) -> None:
    wire.answers.append(answer)
    fault = frame_of("fake:m").fault()
    assert (fault.retryable, fault.cause) == (True, REPLY)


@pytest.mark.parametrize(
    "answer",
    [
        [b"data: 5\n\n", DONE],
        [chunk({"content": "So"}), b'data: {"choices": [{"delta": 5}]}\n\n', DONE],
        {"choices": [{"index": 0, "message": 5, "finish_reason": "stop"}]},
    ],
)
def test_a_reply_that_cannot_be_read_is_a_failed_attempt(wire: Wire, answer: Any) -> None:
    wire.answers.append(answer)
    fault = frame_of("fake:m").fault()
    assert "could not be read" in fault.error
    assert (fault.retryable, fault.cause) == (True, REPLY)


def _raw(delta: str, finish: str = "null") -> bytes:
    choice = f'{{"index":0,"delta":{delta},"finish_reason":{finish}}}'
    return f'data: {{"id":"x","created":1,"model":"m","choices":[{choice}]}}\n\n'.encode()


def _raw_call(id: str, name: str, args: str) -> str:
    function = f'{{"name":"{name}","arguments":"{args}"}}'
    return f'{{"tool_calls":[{{"index":0,"id":{id},"function":{function}}}]}}'


@pytest.mark.parametrize(
    ("deltas", "expected"),
    [
        (['{"content":"So \\ud83d"}', '{"content":"\\ude00."}'], ("So 😀.", ())),
        (['{"content":"a\\u0000b\\ud83d"}'], ("a�b�", ())),
        ([_raw_call('"c"', "send", '{\\"text\\": \\"\\ud83d\\ude00\\"}')], ("", ({"text": "😀"},))),
        ([_raw_call('"c"', "send", '{\\"text\\": \\"a\\\\u0000\\"}')], ("", ({"text": "a�"},))),
        ([_raw_call('"c\\ud83d"', "ping\\u0000", "{}")], ("", ({},))),
        ([_raw_call("7", "ping", "{}")], ("", ({},))),
        (['{"reasoning_content":"a\\ud83d"}', '{"content":"So."}'], ("So.", ())),
    ],
)
def test_stray_characters_are_joined_or_replaced(
    wire: Wire, deltas: list[str], expected: tuple[str, tuple[Any, ...]]
) -> None:
    wire.answers += [[*map(_raw, deltas), _raw("{}", '"stop"'), DONE], openai("Done.")]
    frame = frame_of("fake:m")
    answer = frame.ask()
    assert (answer.text, tuple(call.args for call in answer.calls)) == expected
    if answer.calls:
        frame.settle(("failed", "no"))
    frame.ask()


@pytest.mark.parametrize(
    ("model", "answer"),
    [
        ("fake:m", openai(calls=[call_part("ship", BIG)])),
        ("plain_claude:m", message(use_part("ship", BIG))),
    ],
)
def test_a_number_that_is_too_large_is_named_to_the_model(
    wire: Wire, model: str, answer: Any
) -> None:
    wire.answers.append(answer)
    (call,) = frame_of(model).ask().calls
    with pytest.raises(CallRejected, match=r"arguments\.order: integer beyond 9007199254740991"):
        read_arguments(ship, call.args)


def test_a_reply_over_a_limit_is_a_failed_attempt(wire: Wire) -> None:
    wire.answers += [
        openai(calls=[call_part("ping", {}, f"c{n}") for n in range(129)]),
        openai(calls=[call_part("p" * 500, {})]),
    ]
    frame = frame_of("fake:m", "claude:m")
    fault = frame.fault()
    assert "at most 128 are taken" in fault.error
    assert (fault.retryable, fault.cause, fault.model) == (True, REPLY, "fake:m")
    assert fault.fallback == "claude:m"
    assert frame.ask().calls[0].tool == "p" * 200


@pytest.mark.parametrize("args", ["", "  ", "\n", "null"])
def test_blank_arguments_mean_none(wire: Wire, args: str) -> None:
    wire.answers += [openai(calls=[call_part("ping", args)]), openai("Done.")]
    frame = frame_of("fake:m")
    assert read_arguments(ping, frame.ask().calls[0].args) == {}
    frame.settle(("returned", "open"))
    frame.ask()
    (call,) = wire.bodies[-1]["messages"][-2]["tool_calls"]
    assert call["function"]["arguments"] == "{}"


def _told(tokens: int) -> dict[str, int]:
    return {"prompt_tokens": 100, "completion_tokens": tokens, "total_tokens": 100 + tokens}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ([chunk({"content": "w"}, usage=_told(n)) for n in range(1, 11)], (100, 10)),
        ([chunk({"content": "w"}, usage=_told(n)) for n in (10, 3)], (100, 10)),
        ([chunk({"content": "word " * 200})], (178, 250, 428)),
        ([chunk({"content": "word"}, usage={**_told(0), "prompt_tokens": 0})], (178, 1, 179)),
    ],
)
def test_tokens_are_counted_once_and_estimated_if_nobody_told_them(
    wire: Wire, answer: list[bytes], expected: tuple[int, int]
) -> None:
    wire.answers.append([*answer, chunk({}, "stop"), DONE])
    assert tuple(frame_of("fake:m").ask().usage.values()) == expected
    assert wire.bodies[-1]["stream_options"] == {"include_usage": True}


FIRST, SECOND = call_part("ping", {}, "call_a"), call_part("send", LETTER, "call_b")
PIECES = ('{"te', 'xt": "Dear customer,', ' we"}')


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([FIRST, SECOND], ["ping", "send"]),
        ([{**FIRST, "id": None}, {**SECOND, "id": None}], ["ping", "send"]),
        ([FIRST, {**FIRST, "id": "call_c"}], ["ping", "ping"]),
        ([call_part("send", piece) for piece in PIECES], ["send"]),
        (
            [{**call_part("", ""), "function": {}}, *(call_part("send", one) for one in PIECES)],
            ["send"],
        ),
    ],
)
def test_calls_under_one_index_are_told_apart_by_id_and_name(
    wire: Wire, calls: list[Any], expected: list[str]
) -> None:
    chunks = [chunk({"tool_calls": [one]}) for one in calls]
    wire.answers.append([*chunks, chunk({}, "tool_calls"), DONE])
    found = frame_of("fake:m").ask().calls
    assert [call.tool for call in found] == expected
    assert all(call.args == (LETTER if call.tool == "send" else {}) for call in found)


@pytest.mark.parametrize("line", [b"event: ping\n\n", b"retry: 3000\n\n", b"data:\n\n", b": x\n\n"])
def test_keep_alives_are_skipped(wire: Wire, line: bytes) -> None:
    for model, sent in (("fake:m", openai("Done.")), ("claude:m", anthropic(text_part("Done.")))):
        wire.answers.append([sent[0], line, *sent[1:]])
        assert frame_of(model).ask().text == "Done."


@pytest.mark.parametrize("status", [301, 302, 307, 308])
@pytest.mark.parametrize("model", ["fake:m", "plain:m", "claude:m", "plain_claude:m"])
def test_a_redirect_is_not_followed(wire: Wire, model: str, status: int) -> None:
    """Another address would get the conversation, and Anthropic's key."""
    elsewhere = {"Location": "http://elsewhere.example/v1"}
    wire.answers.append(Response(status, headers=elsewhere, json={}))
    fault = frame_of(model).fault()
    assert (fault.cause, fault.retryable) == (FailureCause.SETUP, True)
    assert f"redirect answered instead of {model} (status {status})" in fault.error
    assert len(wire.requests) == 1


@pytest.mark.parametrize("kind", ["text/event-stream", "application/json"])
@pytest.mark.parametrize("status", [200, 500])
@pytest.mark.parametrize("model", ["fake:m", "claude:m"])
def test_an_answer_is_read_up_to_a_limit(
    wire: Wire, model: str, status: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compressed one may be a thousand times as large as its bytes on the wire."""
    monkeypatch.setattr("agents.llm.clients.models.MAX_ANSWER_BYTES", 1_000_000)
    bomb = gzip.compress(b'data: {"id": "' + b"a" * 2_000_000)
    headers = {"Content-Type": kind, "Content-Encoding": "gzip"}
    wire.answers.append(Response(status, headers=headers, stream=Pieces([bomb])))
    fault = frame_of(model).fault()
    assert (fault.cause, fault.retryable) == (REPLY, True)
    assert "sent more than 1000000 bytes" in fault.error


# What goes back


@tool(effect="read")
def notes(number: str) -> str:
    """Read the notes about an order."""
    return ""


def _blocks(body: dict[str, Any]) -> list[dict[str, Any]]:
    return [block for one in body["messages"] for block in one["content"]]


@pytest.mark.parametrize("name", ["functions.pay", "default_api:pay", "überweisen", "p" * 90, ""])
def test_names_and_ids_go_back_as_every_provider_takes_them(wire: Wire, name: str) -> None:
    odd = "functions.pay:0"
    same = [call_part(name, {}, odd), call_part("ping", {}, odd)]
    wire.answers += [openai(calls=same), openai(calls=[call_part("ping", {}, odd)])]
    frame = frame_of("fake:m", "claude:m")
    for results in ([("refused", "no"), ("returned", "first")], [("returned", "second")]):
        frame.ask()
        frame.settle(*results)
    wire.answers += [openai("Done."), anthropic(text_part("Done."))]
    perform(frame.handler, frame.request())
    perform(frame.handler, replace(frame.request(), model="claude:m"))
    theirs, claude = wire.bodies[-2:]
    sent = [call for one in theirs["messages"] for call in one.get("tool_calls", ())]
    told = [one for one in theirs["messages"] if one["role"] == "tool"]
    ids = [one["tool_call_id"] for one in told]
    assert ids == [call["id"] for call in sent]
    assert len(set(ids)) == len(ids)
    assert [one["content"] for one in told][1:] == ["first", "second"]
    uses = [block for block in _blocks(claude) if block["type"] == "tool_use"]
    given = [block["tool_use_id"] for block in _blocks(claude) if block["type"] == "tool_result"]
    assert given == [block["id"] for block in uses] == ids
    for call in sent:
        assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", call["function"]["name"])
        assert re.fullmatch(r"[a-zA-Z0-9_-]{1,40}", call["id"])


def test_no_blank_text_and_no_thought_of_another_provider_goes_to_anthropic(wire: Wire) -> None:
    calls = [call_part("notes", {"number": "A-1"}, f"call_{n}") for n in range(2)]
    wire.answers += [
        openai("\n\n", calls, reasoning_content="Hm."),
        anthropic(text_part(" "), use_part("notes", {"number": "B-2"})),
        anthropic(text_part("Done.")),
    ]
    frame = frame_of("fake:m", "claude:m", tools=[notes])
    frame.ask()
    frame.settle(("returned", ""), ("returned", None))
    frame.model = "claude:m"
    frame.ask()
    frame.settle(("returned", " \n"))
    frame.ask()
    blocks = _blocks(wire.bodies[-1])
    results = [block["content"] for block in blocks if block["type"] == "tool_result"]
    assert results == [[text_part("The call returned nothing.")]] * 3
    texts = [block["text"] for block in blocks if block["type"] == "text"]
    assert all(text.strip() for text in texts)
    assert not any(block["type"] == "thinking" for block in blocks)


# Settings that a server refuses


def _refusal(setting: str, status: int = 400) -> Response:
    error = {"message": f"{setting} is not supported", "param": setting}
    return Response(status, json={"error": error})


FINAL = openai(calls=[call_part("final_answer", {"summary": "fine"})])
FINE = anthropic(use_part("final_answer", {"summary": "fine"}))


@pytest.mark.parametrize(
    ("model", "refused", "sent"),
    [
        ("fake:m", ["tool_choice"], {"max_tokens", "strict"}),
        ("claude:m", ["tool_choice"], {"max_tokens"}),
        ("gpu:m", ["tools[0].function.strict", "max_tokens"], {"call", "max_completion_tokens"}),
        ("gpu:m", ["tool_choice", "strict", "max_tokens"], {"max_completion_tokens"}),
    ],
)
def test_a_refused_setting_is_left_out_from_then_on(
    wire: Wire, model: str, refused: list[str], sent: set[str]
) -> None:
    frame = frame_of(model, output=Summary, max_tokens=500, tools=[ping])
    answer = FINE if model == "claude:m" else FINAL
    wire.answers += [*map(_refusal, refused), answer, answer]
    for _ in range(2):
        outcome = perform(frame.handler, frame.request())
        assert isinstance(outcome, ModelAnswer)
        assert outcome.output == {"summary": "fine"}
    assert len(wire.bodies) == len(refused) + 2
    body = wire.bodies[-1]
    found: set[str] = {name for name in ("max_tokens", "max_completion_tokens") if name in body}
    found |= {"strict"} if '"strict"' in json.dumps(body["tools"]) else set()
    found |= set() if body["tool_choice"] in ("auto", {"type": "auto"}) else {"call"}
    assert found == sent


def test_a_setting_is_left_out_once_and_remembered_only_if_that_helped(wire: Wire) -> None:
    frame = frame_of("gpu:m", max_tokens=500)
    wire.answers += [
        _refusal("max_tokens", 422),
        _refusal("max_completion_tokens"),
        openai("Done."),
    ]
    fault = frame.fault()
    assert (fault.cause, fault.retryable) == (FailureCause.REQUEST, False)
    assert frame.ask().text == "Done."
    assert ["max_tokens" in body for body in wire.bodies] == [True, False, True]
