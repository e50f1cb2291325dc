"""An HR flow through the real client of a provider, which makes every mistake it can, once each."""

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel
from pytest_django import Settings

from agents.effect_handler import AgentEffects
from agents.endpoints import Endpoint
from agents.registry import Registry
from agents.sdk import agent, scripts
from agents.sdk.scripts import CUT, CUT_BY
from runtime import broker
from runtime.control.interventions import send_message
from runtime.core.run import frames
from runtime.core.values.call_options import RetryPolicy
from runtime.core.values.enums import Verdict
from runtime.execution.effects.perform import perform
from runtime.models import Run, StoredPartialReply
from tests.agents.conftest import Directory
from tests.provider.test_llm_call import KINDS
from tests.support.engine import ADA, Engine, engine_of, events, lose, start_run
from tests.support.people import until
from tests.support.provider.faults import SPOILERS, Fault
from tests.support.provider.server import KEY, Provider
from tests.support.provider.wire import SILENCE, Wire, anthropic, chunk, openai, text_part, use_part
from tests.support.specs import CREATE, NEWCOMER, Frame, registry_of
from tests.support.threads import in_thread

# What the model is told of a call that cannot be made.
COMPLAINTS = {
    Fault.UNKNOWN_TOOL: "there is no tool named delete_everything",
    Fault.DUPLICATE_CALLS: "repeats c1.0",
    Fault.MALFORMED_ARGUMENTS: "the arguments are not a JSON object",
}


def _change(engine: Engine, **changes: Any) -> None:
    """The same agents, written a little differently."""
    handler = engine.context.handler
    assert isinstance(handler, AgentEffects)
    agents = {name: replace(one, **changes) for name, one in handler.registry.agents.items()}
    object.__setattr__(handler, "registry", Registry(agents=agents))


def _of(run: Run, kind: str) -> list[dict[str, Any]]:
    return [event for event in events(run.id) if event["type"] == kind]


@pytest.mark.parametrize("fault", Fault)
def test_a_provider_may_fail_without_anything_happening_twice(
    engine: Engine, provider: Provider, directory: Directory, fault: Fault
) -> None:
    if fault in (Fault.TRICKLE, Fault.HALF_OPEN):
        _change(engine, deadline=1.0)
    provider.faults.append(fault)
    run = engine.begin("hr_access_bundle", NEWCOMER)
    for tool in ("grant_application_access", "set_privileges"):
        run = engine.decide(run, Verdict.APPROVE, tool=tool)
    assert run.status == "completed", run.output
    started = Counter((event["frame"], event["call"]) for event in _of(run, "ToolStarted"))
    assert set(started.values()) == {1}
    lines = Counter(line.split()[0] for line in directory.requests)
    (account,) = directory.accounts()
    given = [one.value for one in [*account.roles, *account.entitlements]]
    assert given == ["security-level-3", "application-intranet"]
    assert (lines["POST"], lines["PATCH"], len(_of(run, "GateOpened"))) == (1, 2, 2)
    assert provider.happened == [fault]
    found = [(retry["call"], retry["cause"]) for retry in _of(run, "RetryScheduled")]
    assert found == ([] if fault in SPOILERS else [(None, "error")])
    marked = [scripts.CUT in json.dumps(body) for body in provider.bodies]
    assert marked[:3] == [False, fault in (Fault.TRICKLE, Fault.HALF_OPEN), False]
    refused = [event["reason"] for event in _of(run, "CallRefused")]
    assert len(refused) == (fault in COMPLAINTS)
    if refused:
        told = [one for one in provider.bodies[1]["messages"] if one["role"] == "tool"]
        assert COMPLAINTS[fault] in refused[0]
        assert COMPLAINTS[fault] in told[-1]["content"]


def test_a_wrong_key_halts_the_run_at_a_gate_and_is_never_quoted(
    engine: Engine, provider: Provider, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings.SIGNOFF_MODEL = "openai:first,openai:second"
    settings.SIGNOFF_OUTAGE_SECONDS = 0.0
    settings.OPENAI_API_KEY = "sk-canary-1234567890"
    run = engine.begin("hr_onboarding_single", NEWCOMER)
    assert (run.status, provider.bodies) == ("suspended", [])
    (gate,) = engine.approvals.requests
    why = "the key for openai:first was refused (status 401)"
    assert gate.kind == "hold"
    assert why in gate.sentence
    (retry,) = _of(run, "RetryScheduled")
    assert (why in retry["error"], retry["instead"]) == (True, "")
    assert "canary" not in json.dumps(events(run.id)) + caplog.text
    settings.OPENAI_API_KEY = KEY
    engine.decide(run, Verdict.CONTINUE)
    assert provider.bodies


def test_the_next_model_follows_the_attempts_at_the_first(
    engine: Engine, provider: Provider, directory: Directory, settings: Any
) -> None:
    settings.SIGNOFF_MODEL = "openai:first, openai:second"
    provider.about = '"model": "first"'
    provider.faults.extend([Fault.SERVER_ERROR] * 2)
    _change(engine, retry=RetryPolicy(attempts=2, base=0.0, ceiling=0.0))
    run = engine.begin("hr_access_bundle", NEWCOMER)
    assert [body["model"] for body in provider.bodies[:4]] == ["first", "first", "second", "second"]
    assert [(one["model"], one["instead"]) for one in _of(run, "RetryScheduled")] == [
        ("openai:first", ""),
        ("openai:first", "openai:second"),
    ]
    answered = [event["model"] for event in _of(run, "ModelReplied")]
    assert answered[:2] == ["openai:second", "openai:second"]


# Plans


PLAN = frames.change_plan((), write=["Look", "Book"], done=[1], doing=2)
WORDS = "Your plan: 1 of 2 items are done, and item 2 is at work. Open:\n2. Book"


def asked(frame: Frame) -> None:
    frame.ask()
    frame.settle(("returned", {"id": "7"}))
    perform(frame.handler, replace(frame.request(), todo=PLAN))
    perform(frame.handler, replace(frame.request(), todo=PLAN, summary=True))


def test_anthropic_gets_the_plan(wire: Wire, settings: Settings, frame: Frame) -> None:
    settings.SIGNOFF_MODEL = "claude:m"
    wire.answers += [anthropic(use_part(CREATE.tool, CREATE.args))] * 3
    asked(frame)
    *_, reminded, summed = wire.bodies
    told = [part for one in reminded["messages"][-2:] for part in one["content"]]
    assert [part["type"] for part in told] == ["tool_result", "text"]
    assert told[-1]["text"] == WORDS
    assert WORDS not in str(summed)


@pytest.mark.parametrize("row", KINDS, ids=lambda row: row[0])
def test_openai_gets_the_plan(
    provider: Provider, hr: Registry, settings: Settings, row: tuple[Any, ...]
) -> None:
    name, kind, provider.root, model, *_ = row
    endpoint = Endpoint(name=name, kind=kind, url=provider.url, key=KEY)
    settings.SIGNOFF_PROVIDERS = {name: endpoint}
    agent = replace(hr.agents["account_agent"], model=None, models=(f"{name}:{model}",))
    asked(Frame(AgentEffects(Registry(agents={agent.name: agent})), agent.name, NEWCOMER))
    *_, reminded, summed = provider.bodies
    assert [one["role"] for one in reminded["messages"]][-2:] == ["tool", "user"]
    assert reminded["messages"][-1]["content"] == WORDS
    assert WORDS not in str(summed)


# Cut replies


BEGINNING = "I have looked at the thr"  # what comes before the silence


class Given(BaseModel):
    """Nothing in particular."""


CLERK = agent(name="clerk", description="Looks.", instructions="Look at the accounts.", input=Given)
WHOLE = f"{BEGINNING}ee accounts, and all are fine."
OPENAI = [chunk({"content": BEGINNING}), SILENCE], openai(WHOLE)
ANTHROPIC = [*anthropic(text_part(BEGINNING))[:3], SILENCE], anthropic(text_part(WHOLE))


def _lose(engine: Engine, run: Run) -> None:
    held = next(iter(engine.heartbeat._claimed.values()))
    held.lost.set()
    held.wake()


@pytest.mark.parametrize(
    ("model", "replies", "tokens"),
    [("fake:m", OPENAI, (61, 67)), ("claude:m", ANTHROPIC, (100, 6))],  # OpenAI tells them last
)
@pytest.mark.parametrize("cause", ["message", "lost"])
def test_the_next_request_says_what_was_cut(
    by_hand: None,
    everything_permitted: None,
    wire: Wire,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    model: str,
    replies: Any,
    tokens: tuple[int, int],
    cause: str,
) -> None:
    monkeypatch.setattr("agents.llm.call.KEEP_SECONDS", 0.02)
    monkeypatch.setattr(broker, "send_all", lambda hints: None)
    settings.SIGNOFF_MODEL = model
    wire.answers += replies
    with engine_of(registry_of(CLERK)) as engine:
        run = start_run("clerk", {})
        worker = in_thread(lambda: engine.advance_once(run))
        until(lambda: StoredPartialReply.objects.filter(run_id=run).first(), "a part of the reply")
        if cause == "message":
            send_message(run=run, actor=ADA, text="Only two.", cut_reply=True)
        else:
            _lose(engine, Run.objects.get(id=run))
        worker.join(20)
        if cause == "lost":
            lose(run)
            engine.go_on(run)
    assert Run.objects.get(id=run).output == json.dumps(WHOLE)
    (retry,) = [one for one in events(run) if one["type"] == "RetryScheduled"]
    known, estimated = tokens
    assert (retry["cause"], retry["partial"], retry["usage"]) == (
        cause,
        BEGINNING,
        {"input_tokens": known, "output_tokens": 6, "estimated_tokens": estimated},
    )
    _, second = wire.bodies
    sent = json.dumps(second["messages"][-2:])
    facts = {"cut_by": CUT_BY[cause], "beginning": BEGINNING, "cut_after_tokens": 6}
    assert json.dumps(f"{CUT}{json.dumps(facts)[:-1]}, ")[1:-1] in sent
    assert ("Only two." in sent) is (cause == "message")
