"""Secret arguments and results: sealed before the engine sees them, opened for the tool and the model only."""

import base64
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo
from pytest_django import Settings

from agents import secrets
from agents.effect_handler import AgentEffects
from agents.errors import DefinitionError, NotSealed
from agents.llm.messages import to_provider
from agents.registry import Registry
from agents.sdk import ToolError, tool
from agents.sdk.scripts import Reply, Turn, call, say, script, together
from runtime.broker import dispatch
from runtime.core.digest import require_json
from runtime.core.documents.compression import plain_text
from runtime.core.enums import Verdict
from runtime.errors import KeyMissing
from runtime.execution.effects.perform import perform
from runtime.keyring import files, purposes, sealing
from runtime.models import Continuation, JournalEntry, Run
from runtime.ports.agents import CallRejected
from runtime.ports.effects import ModelFailure, ToolFailure, ToolResult, Unknown
from tests.support.engine import engine_of
from tests.support.entries import bodies
from tests.support.frames import Frame
from tests.support.specs import Question, registry_of, spec_of, tool_request

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


def _registry(model: Any = locksmith) -> Registry:
    return registry_of(spec_of("smith", input=Question, model=model, tools=[lock, note]))


def _perform(args: Any, name: str = "lock") -> Any:
    return AgentEffects(_registry()).perform(tool_request("smith", name, args))


def _sealed(**args: Any) -> dict[str, Any]:
    sealed: dict[str, Any] = secrets.seal_args(lock, {"door": "front", "password": CANARY, **args})
    return sealed


@pytest.fixture
def keys(settings: Settings, tmp_path: Path) -> Path:
    """A key folder of this test's own; the file of the purpose in it."""
    settings.KEYS_DIR = tmp_path
    files._ring.cache_clear()
    return files.ensure(purposes.SECRETS)


@pytest.fixture(autouse=True)
def _fresh_ring() -> Any:
    yield
    files._ring.cache_clear()


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


def test_a_new_key_seals_and_the_old_one_still_opens(keys: Path) -> None:
    before = _sealed()
    keys.write_text(f"new:{'ab' * 32}\n{keys.read_text()}")
    files._ring.cache_clear()
    assert _sealed()["password"]["$secret"].startswith("new:")
    assert secrets.open_args(lock, before)["password"] == CANARY


@pytest.mark.parametrize("args", ['{"door": "front", "password": "x', [CANARY], CANARY, None])
def test_arguments_that_are_no_object_are_sealed_whole(keys: Path, args: Any) -> None:
    sealed = secrets.seal_args(lock, args)
    assert sealing.is_sealed(sealed)
    assert secrets.open_args(lock, sealed) == args


def test_a_misspelt_argument_may_be_the_secret_and_is_sealed_too(keys: Path) -> None:
    sealed = secrets.seal_args(lock, {"door": "front", "pasword": CANARY})
    assert CANARY not in json.dumps(sealed)
    with pytest.raises(CallRejected) as caught:
        AgentEffects(_registry()).describe(agent="smith", tool="lock", args=sealed)
    assert "arguments.pasword: Extra inputs" in str(caught.value)


def test_a_token_opens_only_where_it_belongs(keys: Path) -> None:
    token = _sealed()["password"]
    with pytest.raises(NotSealed):
        secrets.open_result(lock, token)
    with pytest.raises(NotSealed):
        secrets.open_reply(lock, token)
    changed = {"$secret": token["$secret"][:-6] + "AAAA=="}
    with pytest.raises(NotSealed):
        secrets.open_args(lock, {"password": changed})
    # For a tool without secrets this is an ordinary object with a strange key.
    assert secrets.open_args(note, {"text": token}) == {"text": token}


@pytest.mark.parametrize("value", ["", "a", "ab"])
def test_releases_with_and_without_tags_open_each_others_tokens(keys: Path, value: str) -> None:
    where = sealing.place("lock", "args", "password")
    sealed = sealing.seal(value, where)
    assert sealing.unseal({"$secret": sealed["$secret"].partition(".")[0]}, where) == value
    # As the release before opens it.
    key_id, _, text = sealed["$secret"].partition(":")
    token = base64.urlsafe_b64decode(text)
    cipher = AESGCM(files.key_of(purposes.SECRETS, key_id))
    assert json.loads(cipher.decrypt(token[:12], token[12:], where)) == value


def test_a_token_whose_tag_was_changed_opens_nowhere(keys: Path) -> None:
    token = _sealed()["password"]["$secret"]
    for tag in ("", "AAAA", token.partition(".")[2] + "="):
        with pytest.raises(NotSealed):
            secrets.open_args(lock, {"password": {"$secret": f"{token.partition('.')[0]}.{tag}"}})


def test_a_token_proposed_by_the_model_is_ordinary_text(keys: Path) -> None:
    forged = _sealed()["password"]
    sealed = secrets.seal_args(lock, {"door": "front", "password": forged})
    assert secrets.open_args(lock, sealed)["password"] == forged
    with pytest.raises(CallRejected, match=r"arguments\.password"):
        AgentEffects(_registry()).describe(agent="smith", tool="lock", args=sealed)


def test_the_schema_checks_a_secret_that_the_sentence_hides(keys: Path) -> None:
    facts = AgentEffects(_registry()).describe(agent="smith", tool="lock", args=_sealed())
    assert facts.sentence == "Lock front with ••••"
    assert facts.schema["properties"]["password"]["type"] == "string"
    assert facts.result_schema == {"type": "null"}  # no secret is reported
    with pytest.raises(CallRejected, match=r"arguments\.password: Input should be a valid string"):
        AgentEffects(_registry()).describe(agent="smith", tool="lock", args=_sealed(password=7))


def test_a_result_is_sealed_and_an_error_is_without_the_secret(
    keys: Path, caplog: pytest.LogCaptureFixture
) -> None:
    done = _perform(_sealed())
    assert isinstance(done, ToolResult)
    assert sealing.is_sealed(done.value)
    assert secrets.open_result(lock, done.value) == {"code": ANSWER}
    assert heard[-1] == CANARY
    assert _perform(_sealed(how="told")) == ToolFailure(error="the door does not take ••••")
    assert _perform(_sealed(how="raised")) == Unknown(error="ValueError: bad password '••••'")
    assert "bad password" in caplog.text
    assert CANARY not in caplog.text


def test_a_missing_key_fails_describing_and_delays_performing(keys: Path) -> None:
    args = _sealed()
    keys.write_text(f"other:{'ab' * 32}\n")
    files._ring.cache_clear()
    with pytest.raises(KeyMissing):
        AgentEffects(_registry()).describe(agent="smith", tool="lock", args=args)
    before = len(heard)
    outcome = _perform(args)
    assert isinstance(outcome, ToolFailure)
    assert (outcome.retryable, outcome.retry_after) == (True, 60.0)
    assert "is not in the ring" in outcome.error
    assert len(heard) == before


def test_a_model_call_waits_for_a_missing_key_too(keys: Path) -> None:
    frame = Frame(AgentEffects(_registry()), "smith", {"text": "go"})
    frame.ask()
    frame.settle(("denied", "no"))
    keys.write_text(f"other:{'ab' * 32}\n")
    files._ring.cache_clear()
    outcome = perform(frame.handler, frame.request())
    assert isinstance(outcome, ModelFailure)
    assert (outcome.retryable, outcome.retry_after) == (True, 60.0)


@pytest.mark.parametrize(
    "args", [{"door": "a", "password": CANARY}, f'{{"door": "a",  "password": "{CANARY}"}}']
)
def test_a_reply_goes_back_with_its_original_arguments(keys: Path, args: Any) -> None:
    seen: list[ModelMessage] = []
    replies = [
        ModelResponse(parts=[ToolCallPart(tool_name="lock", args=args, tool_call_id="p-1")]),
        say("done"),
    ]

    def model(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        seen[:] = messages
        return replies.pop(0)

    frame = Frame(AgentEffects(_registry(model)), "smith", {"text": "go"})
    (proposal,) = frame.ask().calls
    assert CANARY not in json.dumps([proposal.args, frame.messages])
    frame.settle(("returned", secrets.seal_result(lock, {"code": ANSWER})))
    frame.messages = json.loads(json.dumps(frame.messages))
    frame.ask()
    _, back, results = seen
    assert isinstance(back, ModelResponse)
    assert isinstance(back.parts[0], ToolCallPart)
    assert back.parts[0].args == args
    assert isinstance(results, ModelRequest)
    (part,) = results.parts
    assert isinstance(part, ToolReturnPart)
    assert part.content == {"code": ANSWER}


def test_equal_calls_are_found_before_sealing_their_secrets(keys: Path) -> None:
    twice = [call("lock", door="a", password=CANARY) for _ in range(2)]
    frame = Frame(AgentEffects(_registry(lambda *_: together(*twice))), "smith", {"text": "go"})
    first, second = frame.ask().calls
    assert frame.handler.describe(agent="smith", tool="lock", args=first.args).gated
    with pytest.raises(CallRejected, match="of the same reply"):
        frame.handler.describe(agent="smith", tool="lock", args=second.args)


def test_a_models_error_is_not_quoted_with_secrets(
    keys: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def model(*_: Any) -> ModelResponse:
        raise KeyError(CANARY)

    frame = Frame(AgentEffects(_registry(model)), "smith", {"text": "go"})
    fault = perform(frame.handler, frame.request())
    assert isinstance(fault, ModelFailure)
    assert (fault.error, fault.retryable) == ("KeyError", False)
    assert "failed: KeyError" in caplog.text
    assert CANARY not in caplog.text


@pytest.mark.parametrize("names", [["nothing"], "door"])
def test_only_arguments_can_be_secret(names: Any) -> None:
    with pytest.raises(DefinitionError, match="names of its arguments"):
        tool(secret_args=names)(lock.function)


def test_no_secret_is_found_anywhere_on_the_engine(
    transactional_db: None,
    continued: None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(dispatch, "dispatch", lambda run, queue="": None)
    caplog.set_level(logging.DEBUG)
    stored: list[str] = []
    with engine_of(_registry()) as engine:
        run = engine.begin("smith", {"text": "go"})
        stored.append(Continuation.objects.get(run=run.id).body)
        stored.append(repr(engine.snapshots))
        run = engine.decide(run, Verdict.APPROVE)
        stored.append(Continuation.objects.get(run=run.id).body)
        stored.append(repr(engine.snapshots))
        run = engine.decide(run, Verdict.APPROVE)
    assert run.status == "completed"
    assert heard[-2:] == [CANARY, ANSWER]  # the second password is the first result
    stored += map(plain_text, bodies(JournalEntry.objects.filter(run_id=run.id)))
    stored += [repr(row) for row in Run.objects.filter(id=run.id).values()]
    everything = "\n".join([*stored, caplog.text])
    assert everything.count("$secret") >= 6
    assert "canary" not in everything


def test_a_tool_may_seal_its_arguments_or_its_result(keys: Path) -> None:
    @tool(secret_args=["code"])
    def enter(code: str) -> str:
        """Enters."""
        return "in"

    @tool(secret_result=True)
    def draw(door: str) -> str:
        """Draws a code."""
        return ANSWER

    @script
    def both(turn: Turn) -> Reply:
        """Plays the model."""
        return together(call("enter", code=CANARY), call("draw", door="front"))

    asker = spec_of("asker", input=Question, model=both, tools=[enter, draw])
    frame = Frame(AgentEffects(registry_of(asker)), "asker", {"text": "go"})
    frame.ask()
    frame.settle(("returned", "in"), ("returned", secrets.seal_result(asker.tools[1], ANSWER)))
    told: list[Any] = to_provider(asker, tuple(frame.messages), calls=frame.calls)
    assert [part.args for part in told[1].parts] == [{"code": CANARY}, {"door": "front"}]
    assert [part.content for part in told[2].parts] == ["in", ANSWER]
