"""An HR flow through the real client of a provider, which makes every mistake it can, once each."""

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from agents.effect_handler import AgentEffects
from agents.registry import Registry
from agents.sdk import scripts
from runtime.core.values.call_options import RetryPolicy
from runtime.core.values.enums import Verdict
from runtime.models import Run
from tests.agents.conftest import Directory
from tests.support.engine import Engine, events
from tests.support.provider.faults import SPOILERS, Fault
from tests.support.provider.server import KEY, Provider
from tests.support.specs import NEWCOMER

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
    (gate,) = engine.approvals.snapshots
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
