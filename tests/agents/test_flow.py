"""The onboarding flows on the real engine, a real directory and a real mail server."""

import json
from collections.abc import Iterator
from uuid import UUID

import pytest
from django.db import transaction

from agents.handlers import Handler
from agents.registry import Registry
from runtime import dispatch, engine
from runtime.advance import advance
from runtime.coordinator import Bench
from runtime.core.decisions import Decision, Verdict
from runtime.executor import Executor
from runtime.heartbeat import Heartbeat
from runtime.models import Continuation, Gate, Run
from runtime.ports import Actor
from tests.agents.conftest import Directory, Sink
from tests.agents.test_onboarding import NEWCOMER
from tests.fakes.ports import FakeGatekeeper

FLOWS = [
    ("hr_onboarding", {"0": "hr_onboarding", "0.c1.0": "account_agent"}),
    ("hr_onboarding_single", {"0": "hr_onboarding_single"}),
]


@pytest.fixture
def bench(hr: Registry, transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setattr(dispatch, "hint", lambda run: None)  # these tests advance by hand
    heartbeat = Heartbeat()
    heartbeat.start()
    executor = Executor(Handler(hr), slots=4)
    yield Bench(
        handler=Handler(hr), gatekeeper=FakeGatekeeper(), executor=executor, heartbeat=heartbeat
    )
    heartbeat.stop()
    executor.close()


def _to_the_gate(bench: Bench, agent: str) -> UUID:
    with transaction.atomic():
        run = engine.start(agent=agent, input=NEWCOMER, requester=Actor(person="ada")).run
    advance(run, bench)
    return run


def _decide(bench: Bench, run: UUID, verdict: Verdict, reason: str = "") -> Run:
    gate = Gate.objects.get(run=run, state="open")
    with transaction.atomic():
        engine.settle(gate=gate.id, decision=Decision(verdict=verdict, by="bea", reason=reason))
    advance(run, bench)
    return Run.objects.get(id=run)


@pytest.mark.parametrize(("agent", "frames"), FLOWS)
def test_an_approved_onboarding_gives_one_account_its_role_and_one_mail(
    bench: Bench, directory: Directory, sink: Sink, agent: str, frames: dict[str, str]
) -> None:
    run = _to_the_gate(bench, agent)
    stored = json.loads(Continuation.objects.get(run=run).body)
    assert {name: frame["agent"] for name, frame in stored["frames"].items()} == frames
    (pending,) = stored["pending"]
    assert pending["path"] == [*frames.values(), "set_privileges"]
    (account,) = directory.accounts()
    assert account.external_id == f"{run}/{list(frames)[-1]}/c1.0"
    assert not account.roles
    assert sink.mails == []

    done = _decide(bench, run, Verdict.APPROVE)

    assert done.status == "completed"
    assert json.loads(done.output or "") == (
        "The account new.hire was made with security level 3. "
        "The welcome mail went to new.hire@example.com."
    )
    (account,) = directory.accounts()
    assert [role.value for role in account.roles] == ["security-level-3"]
    assert len(sink.mails) == 1


@pytest.mark.parametrize("agent", [agent for agent, _ in FLOWS])
def test_a_denied_onboarding_leaves_the_account_without_a_role_and_says_why(
    bench: Bench, directory: Directory, sink: Sink, agent: str
) -> None:
    run = _to_the_gate(bench, agent)
    done = _decide(bench, run, Verdict.DENY, "not before the trial period ends")
    assert done.status == "completed"
    assert "were denied: not before the trial period ends" in json.loads(done.output or "")
    (account,) = directory.accounts()
    assert not account.roles
    assert not any(line.startswith("PATCH") for line in directory.requests)
    assert len(sink.mails) == 1


@pytest.mark.parametrize("agent", [agent for agent, _ in FLOWS])
def test_a_taken_username_ends_the_onboarding_without_gate_and_mail(
    bench: Bench, directory: Directory, sink: Sink, agent: str
) -> None:
    first = _to_the_gate(bench, "hr_onboarding_single")
    second = _to_the_gate(bench, agent)
    done = Run.objects.get(id=second)
    assert done.status == "completed"
    assert json.loads(done.output or "") == (
        "No account was made for new.hire: the username new.hire is taken."
    )
    assert not Gate.objects.filter(run=second).exists()
    (account,) = directory.accounts()
    assert account.external_id.startswith(str(first))
    assert sink.mails == []
