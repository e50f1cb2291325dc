"""Secret arguments and results: sealed before the engine sees them, opened for the tool and the model only."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import ModelResponse, ToolCallPart
from pytest_django import Settings

from agents import secrets, tool_calls
from agents.effect_handler import AgentEffects
from agents.errors import NotSealed
from agents.llm.messages import to_provider
from agents.sdk import ToolError, tool
from agents.sdk.scripts import Reply, Turn, call, say, script, together
from runtime.core.documents.codec import decode_stored_text
from runtime.core.values.enums import Verdict
from runtime.core.values.json_values import require_json
from runtime.errors import KeyMissing
from runtime.execution.effects.perform import perform
from runtime.keyring import files, purposes, sealing
from runtime.models import JournalEntry, Run, StoredContinuation
from runtime.ports.agents import CallInfo, CallRejected
from runtime.ports.effects import ModelFailure, ToolFailure, ToolResult, Unknown
from tests.support.engine import bodies, engine_of
from tests.support.specs import Frame, Question, registry_of, spec_of, tool_request

CANARY = "canary-Tr0ub4dor&3"
ANSWER = "canary-answer"
heard: list[Any] = []


@tool(
    effect="idempotent",
    approval=True,
    secret_args=["password"],
    secret_result=True,
    sentence="Lock {door} with {password}",
)
def lock(door: str, password: str, how: str = "") -> dict[str, str]:
    """Locks a door."""
    heard.append(password)
    match how:
        case "told":
            raise ToolError(f"the door does not take {password}")
        case "raised":
            raise ValueError(f"bad password {password!r}")
        case _:
            return {"code": ANSWER}


@tool(secret_args=["code"])
def enter(code: str) -> str:
    """Enters."""
    return "in"


@tool(secret_result=True)
def draw(door: str) -> str:
    """Draws a code."""
    return ANSWER


@tool()
def note(text: str) -> str:
    """Takes a note."""
    return text


@script
def locksmith(turn: Turn) -> Reply:
    """Locks, uses the code it got to lock again, and says no word of it."""
    locked = [result for result in turn.results if result.tool == "lock"]
    if not locked:
        return call("lock", door="front", password=CANARY)
    if len(locked) == 1:
        return call("lock", door="back", password=locked[0].content["code"])
    return say("Both doors are locked.")


def _smith(model: Any = locksmith) -> AgentEffects:
    tools = [lock, enter, draw, note]
    return AgentEffects(registry_of(spec_of("smith", input=Question, model=model, tools=tools)))


def _frame(model: Any = locksmith) -> Frame:
    return Frame(_smith(model), "smith", {"text": "go"})


def _describe(args: Any) -> CallInfo:
    return _smith().describe(agent="smith", tool="lock", args=args)


def _perform(args: Any) -> Any:
    return _smith().perform(tool_request("smith", "lock", args))


def _sealed(**args: Any) -> dict[str, Any]:
    sealed: dict[str, Any] = secrets.seal_args(lock, {"door": "front", "password": CANARY, **args})
    return sealed


@pytest.fixture
def keys(settings: Settings, tmp_path: Path) -> Iterator[Path]:
    """A key folder of this test's own; the file of the purpose in it."""
    settings.KEYS_DIR = tmp_path
    files._read_ring.cache_clear()
    yield files.ensure(purposes.SECRETS)
    files._read_ring.cache_clear()


def _replace(keys: Path, text: str) -> None:
    keys.write_text(text)
    files._read_ring.cache_clear()


def test_a_sealed_value_is_json_and_shows_only_its_key(keys: Path) -> None:
    args = _sealed()
    require_json(args)
    assert args["door"] == "front"
    (mark,) = args["password"]
    key_id, _, token = args["password"][mark].partition(":")
    assert (mark, key_id) == ("$secret", keys.read_text().partition(":")[0])
    assert CANARY not in json.dumps(args)
    assert token != _sealed()["password"][mark].partition(":")[2]
    assert secrets.open_args(lock, args) == {"door": "front", "password": CANARY}
    _replace(keys, f"new:{'ab' * 32}\n{keys.read_text()}")
    assert _sealed()["password"][mark].startswith("new:")
    assert secrets.open_args(lock, args)["password"] == CANARY


@pytest.mark.parametrize("args", ['{"door": "front", "password": "x', [CANARY], None])
def test_arguments_that_are_no_object_are_sealed_whole(keys: Path, args: Any) -> None:
    sealed = secrets.seal_args(lock, args)
    assert sealing.is_sealed(sealed)
    assert secrets.open_args(lock, sealed) == args


def test_a_misspelt_argument_may_be_the_secret_and_is_sealed_too(keys: Path) -> None:
    sealed = secrets.seal_args(lock, {"door": "front", "pasword": CANARY})
    assert CANARY not in json.dumps(sealed)
    with pytest.raises(CallRejected, match=r"arguments\.pasword: Extra inputs"):
        _describe(sealed)


def test_a_token_opens_only_where_it_belongs(keys: Path) -> None:
    token = _sealed()["password"]
    with pytest.raises(NotSealed):
        secrets.open_result(lock, token)
    with pytest.raises(NotSealed):
        secrets.open_reply(lock, token)
    text, _, tag = token["$secret"].partition(".")
    changed = [f"{text}.{other}" for other in ("", "AAAA", f"{tag}=")]
    for forged in (*changed, token["$secret"][:-6] + "AAAA=="):
        with pytest.raises(NotSealed):
            secrets.open_args(lock, {"password": {"$secret": forged}})
    # For a tool without secrets this is an ordinary object with a strange key.
    assert tool_calls.open_arguments(note, {"text": token}) == {"text": token}


@pytest.mark.parametrize("value", ["", "a", "ab"])
def test_a_token_without_its_tag_opens_nowhere(keys: Path, value: str) -> None:
    where = sealing.encode_location("lock", "args", "password")
    sealed = sealing.seal(value, where)
    assert sealing.unseal(sealed, where) == value
    for untagged in (
        sealed["$secret"].partition(".")[0],
        sealed["$secret"].partition(".")[0] + ".",
    ):
        with pytest.raises(sealing.NotOurs):
            sealing.unseal({"$secret": untagged}, where)


def test_a_token_proposed_by_the_model_is_ordinary_text(keys: Path) -> None:
    forged = _sealed()["password"]
    sealed = secrets.seal_args(lock, {"door": "front", "password": forged})
    assert secrets.open_args(lock, sealed)["password"] == forged
    with pytest.raises(CallRejected, match=r"arguments\.password"):
        _describe(sealed)


def test_the_schema_checks_a_secret_that_the_sentence_hides(keys: Path) -> None:
    facts = _describe(_sealed())
    assert facts.sentence == "Lock front with ••••"
    assert facts.schema["properties"]["password"]["type"] == "string"
    assert facts.result_schema == {"type": "null"}  # no secret is reported
    with pytest.raises(CallRejected, match=r"arguments\.password: Input should be a valid string"):
        _describe(_sealed(password=7))


def test_result_and_error_hide_the_secret(keys: Path, caplog: pytest.LogCaptureFixture) -> None:
    done = _perform(_sealed())
    assert isinstance(done, ToolResult)
    assert secrets.open_result(lock, done.value) == {"code": ANSWER} != done.value
    assert heard[-1] == CANARY
    assert _perform(_sealed(how="told")) == ToolFailure(error="the door does not take ••••")
    assert _perform(_sealed(how="raised")) == Unknown(error="ValueError: bad password '••••'")

    def broken(*_: Any) -> ModelResponse:
        raise KeyError(CANARY)

    fault = _frame(broken).fault()
    assert (fault.error, fault.retryable) == ("KeyError", False)
    assert "bad password" in caplog.text
    assert "failed: KeyError" in caplog.text
    assert CANARY not in caplog.text


def test_calls_of_tools_and_models_wait_for_a_missing_key(keys: Path) -> None:
    args, frame = _sealed(), _frame()
    frame.ask()
    frame.settle(("denied", "no"))
    _replace(keys, f"other:{'ab' * 32}\n")
    with pytest.raises(KeyMissing):
        _describe(args)
    before = len(heard)
    for outcome in (_perform(args), perform(frame.handler, frame.request())):
        assert isinstance(outcome, ToolFailure | ModelFailure)
        assert (outcome.retryable, outcome.retry_after) == (True, 60.0)
        assert "is not in the ring" in outcome.error
    assert len(heard) == before


@pytest.mark.parametrize(
    "args", [{"door": "a", "password": CANARY}, f'{{"door": "a",  "password": "{CANARY}"}}']
)
def test_a_reply_goes_back_with_its_original_arguments(keys: Path, args: Any) -> None:
    locking = ToolCallPart(tool_name="lock", args=args, tool_call_id="p-1")
    others = together(call("enter", code=CANARY), call("draw", door="front")).parts
    frame = _frame(lambda *_: ModelResponse(parts=[locking, *others]))
    proposals = [one.args for one in frame.ask().calls]
    assert CANARY not in json.dumps([proposals, frame.messages])
    results = [secrets.seal_result(lock, {"code": ANSWER}), "in", secrets.seal_result(draw, ANSWER)]
    frame.settle(*(("returned", result) for result in results))
    messages = tuple(json.loads(json.dumps(frame.messages)))
    smith = frame.handler.registry.get("smith")
    told: list[Any] = to_provider(smith, messages, calls=frame.calls)
    assert [part.args for part in told[1].parts] == [args, {"code": CANARY}, {"door": "front"}]
    assert [part.content for part in told[2].parts] == [{"code": ANSWER}, "in", ANSWER]


def test_equal_calls_are_found_before_sealing_their_secrets(keys: Path) -> None:
    twice = [call("lock", door="a", password=CANARY) for _ in range(2)]
    first, second = _frame(lambda *_: together(*twice)).ask().calls
    assert _describe(first.args).gated
    with pytest.raises(CallRejected, match="of the same reply"):
        _describe(second.args)
    unlike = [call("enter", code=code) for code in (1, True)]
    assert list(_frame(lambda *_: together(*unlike)).ask().calls[1].args) == ["code"]


def test_no_secret_is_found_anywhere_on_the_engine(
    by_hand: None, continued: None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    stored: list[str] = []
    with engine_of(_smith().registry) as engine:
        run = engine.begin("smith", {"text": "go"})
        for _ in range(2):
            stored.append(StoredContinuation.objects.get(run=run.id).body)
            stored.append(repr(engine.approvals.requests))
            run = engine.decide(run, Verdict.APPROVE)
    assert run.status == "completed"
    assert heard[-2:] == [CANARY, ANSWER]  # the second password is the first result
    stored += map(decode_stored_text, bodies(JournalEntry.objects.filter(run_id=run.id)))
    stored += [repr(row) for row in Run.objects.filter(id=run.id).values()]
    everything = "\n".join([*stored, caplog.text])
    assert everything.count("$secret") >= 6
    assert "canary" not in everything
