"""The onboarding agents on a worker that the test advances by hand, and stored rows that a test changes."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import patch
from uuid import UUID, uuid4

import pytest

from approvals.models import Approval
from approvals.port.adapter import ApprovalService
from approvals.requests import snapshot
from runtime.control.interventions import cancel as cancel_run
from runtime.core.values.budgets import BudgetLimits
from runtime.core.values.enums import EffectClass, GateKind, Risk, Verdict
from runtime.core.values.json_values import hash_value
from runtime.errors import Forbidden
from runtime.keyring import purposes, signatures
from runtime.models import JournalEntry, Run, StoredContinuation
from runtime.ports.access import Actor
from runtime.ports.agents import AgentInfo, CallInfo
from runtime.ports.effects import ModelFailure, ToolRequest, ToolResult, Unknown
from runtime.store import pool
from runtime.store.tables import continuations
from tests.support.engine import HandDriven, start_run
from tests.support.fake_ports import FakeEffects, FakeTool, Script, ask, say, turns
from tests.support.seeds import Cast, decide

BEA = Actor(person="bea")
NEWCOMER = {"full_name": "New Hire", "username": "newhire", "security_level": 3}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "username": {"type": "string", "maxLength": 64},
        "security_level": {"type": "integer", "minimum": 1, "maximum": 5},
        "note": {"type": "string", "default": "none"},
    },
    "required": ["username", "security_level"],
}


def reseal(approvals: Iterable[Approval], **changes: Any) -> None:
    """Change requests as if the engine had asked so in the first place."""
    for approval in approvals:
        for name, value in changes.items():
            setattr(approval, name, value)
        approval.approval_digest = snapshot.compute_approval_digest(approval)
        seal = signatures.seal(purposes.REQUESTS, approval.approval_digest, short=True)
        approval.seal, approval.seal_key_id = seal.mac, seal.key_id
        approval.save()


def onboarding(args: Any) -> dict[str, Script]:
    """hr_onboarding delegates to account_agent, which sets privileges with these arguments."""
    return {
        "hr_onboarding": turns(
            ask(("account_agent", NEWCOMER)),
            ask(("send_welcome_mail", {"username": "newhire"})),
            say("New Hire is on board."),
        ),
        "account_agent": turns(
            ask(("create_account", {"username": "newhire"})),
            ask(("set_privileges", args)),
            say("The account of newhire is ready."),
        ),
    }


TOOLS = {
    "create_account": FakeTool(effect=EffectClass.IDEMPOTENT),
    "set_privileges": FakeTool(effect=EffectClass.IDEMPOTENT, gated=True),
    "send_welcome_mail": FakeTool(),
}
MAIL_RESULT = {"message_id": "m-1"}
MAIL_RESULT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"message_id": {"type": "string"}},
    "required": ["message_id"],
}
LOST = FakeTool(body=lambda request: Unknown(error="the connection was cut"))


class OfficeEffects(FakeEffects):
    """The fake handler with data for a page: declared steps, a schema, a risk and a sentence."""

    steps: tuple[str, ...] | None = ("Create the account", "Set its privileges")
    result_schema: dict[str, Any] | None = MAIL_RESULT_SCHEMA

    def agent(self, name: str) -> AgentInfo:
        plan = self.steps if name == "account_agent" else None
        return replace(super().agent(name), plan=plan)

    def describe(self, *, agent: str, tool: str, args: Any) -> CallInfo:
        facts = super().describe(agent=agent, tool=tool, args=args)
        changed: dict[str, Any] = {}
        if tool == "send_welcome_mail":
            changed = {"result_schema": self.result_schema}
        elif tool == "set_privileges":
            level = f"{args.get('username')} to {args.get('security_level')}"
            changed = {"risk": Risk.MEDIUM, "sentence": f"Set the privileges of {level}"}
            changed |= {"schema": SCHEMA}
        elif facts.question:
            changed = {"sentence": f"The agent asks: {args['question']}"}
        if not changed:
            return facts
        return replace(
            facts, **changed, schema_digest=hash_value(changed.get("schema", facts.schema))
        )


class Office(HandDriven):
    """A worker with the onboarding agents and the real approvals."""

    def __init__(self) -> None:
        self.effects = OfficeEffects(
            onboarding({"username": "newhire", "security_level": 3}), dict(TOOLS)
        )
        super().__init__(self.effects, ApprovalService())

    def start(
        self,
        *,
        requester: str = "ada",
        key: str | None = None,
        args: Any = None,
        advanced: bool = True,
        budget: BudgetLimits | None = None,
    ) -> UUID:
        """A run taken as far as it goes; `args` are those of the gated call."""
        if args is not None:
            self.effects.agents = onboarding(args)
        person = Actor(person=requester)
        run = start_run("hr_onboarding", NEWCOMER, person, business_key=key, budget=budget)
        if advanced:
            self.advance(run)
        return run

    def ask_twice(self) -> None:
        """Make account_agent propose two gated calls in one turn from now on."""
        level = ("set_privileges", {"username": "newhire", "security_level": 1})
        other = ("set_privileges", {"username": "another", "security_level": 2})
        self.effects.agents["account_agent"] = turns(ask(level, other), say("Both are ready."))

    def in_doubt(self) -> UUID:
        """A run of Ada's whose approved privileges are set, and whose mail is lost on the way."""
        self.effects.tools["send_welcome_mail"] = LOST
        run = self.start()
        self.approve(run)
        return run

    def failed(self) -> UUID:
        """A run of Ada's whose model could not answer after Bea had approved a call of it."""
        self.effects.agents["hr_onboarding"] = turns(
            ask(("account_agent", NEWCOMER)), ModelFailure(error="<no>")
        )
        run = self.start()
        self.approve(run)
        return run

    def held(self, why: str = "account_agent stops after every reply") -> Approval:
        """The hold of a run of Ada's, before the second model call of its account agent."""
        self.effects.holds = ["", "", why]
        return Approval.objects.get(run=self.start(), kind=GateKind.HOLD)

    def question(self, text: str, answer: dict[str, Any]) -> Approval:
        """The question of a run of Ada's, whose answer has this schema."""
        self.effects.tools["ask_person"] = FakeTool(
            effect=EffectClass.READ, question=True, result_schema=answer
        )
        self.effects.agents["hr_onboarding"] = turns(
            ask(("ask_person", {"question": text})), say("Thank you.")
        )
        return Approval.objects.get(run=self.start(), kind=GateKind.QUESTION)

    def short(self, budget: BudgetLimits) -> Approval:
        """The limit gate of a run of Ada's, which may use no more than that."""
        return Approval.objects.get(run=self.start(budget=budget), kind=GateKind.LIMIT)

    def approve(self, run: UUID) -> Run:
        """As Bea, and take the run further."""
        decide(self.request(run), BEA)
        return self.advance(run)

    def deny(self, run: UUID, reason: str) -> Run:
        """As Bea, and take the run further."""
        decide(self.request(run), BEA, Verdict.DENY, reason)
        return self.advance(run)

    def cancel(self, run: UUID, reason: str) -> UUID:
        cancel_run(run=run, reason=reason, actor=Actor(person="ada"))
        self.advance(run)
        return run

    advance = HandDriven.advance_once

    def started(self, run: UUID, tool: str = "set_privileges") -> int:
        """Count the starts of the tool for this run."""
        return sum(call.run == run and call.tool == tool for call in self.effects.calls)

    def request(self, run: UUID) -> Approval:
        return Approval.objects.get(run=run, kind=GateKind.APPROVAL)

    def in_doubt_request(self, run: UUID) -> Approval:
        return Approval.objects.get(run=run, kind=GateKind.IN_DOUBT)


@pytest.fixture
def office(by_hand: None, cast: Cast) -> Iterator[Office]:
    """The engine at work on this test's database."""
    office = Office()
    yield office
    office.close()


@pytest.fixture
def suspended(office: Office) -> UUID:
    """Ada's run, which waits for a reviewer to approve the privileges."""
    return office.start()


def refused(run: UUID, actor: Actor) -> str:
    """Return the code with which the actor may not approve the run's open request."""
    with pytest.raises(Forbidden) as caught:
        approve(run, actor)
    return caught.value.code


def approve(run: UUID, actor: Actor) -> None:
    """Approve the run's open request."""
    decide(Approval.objects.get(run=run, status="pending"), actor, reason="ok")


class Target(Office):
    """Runs with a gated call, stored states to tamper with, and the outcome."""

    def decide(self, run: UUID, verdict: Verdict = Verdict.APPROVE, reason: str = "") -> Approval:
        """Decide the oldest pending request as Bea; no worker has claimed the run since."""
        approval = Approval.objects.filter(run=run, status="pending").earliest("created_at", "id")
        decide(approval, BEA, verdict, reason)
        return Approval.objects.get(id=approval.id)

    def decided(self, verdict: Verdict = Verdict.APPROVE) -> UUID:
        """A run with a decision that no worker has read."""
        run = self.start()
        self.decide(run, verdict)
        return run

    def abandoned(self) -> UUID:
        """An approved run whose worker was replaced in the middle: it has entries after its continuation."""
        self.effects.tools["send_welcome_mail"] = FakeTool(
            effect=EffectClass.IDEMPOTENT, body=_robbed
        )
        run = self.decided()
        with patch.object(continuations, "needs_brief", lambda covered, tail, release: False):
            self.advance(run)
        self.effects.tools["send_welcome_mail"] = FakeTool(effect=EffectClass.IDEMPOTENT)
        with pool.open_own() as own:
            own.execute("UPDATE runtime_run SET owner = NULL, due_at = now() WHERE id = %s", (run,))
        assert Run.objects.get(id=run).position > StoredContinuation.objects.get(run=run).position
        return run

    def touch(self, table: str, run: UUID, change: str, *values: object) -> None:
        """UPDATE the stored state of a run, as no code of ours does."""
        column = "id" if table == "runtime_run" else "run_id"
        with pool.open_own() as own:
            own.execute(f"UPDATE {table} SET {change} WHERE {column} = %s", (*values, run))

    def assert_parked(self, run: UUID, reason: str) -> None:
        """Advancing it starts nothing, writes nothing, and parks it with this reason."""
        before = (len(self.effects.calls), len(self.effects.models), _entries(run))
        after = self.advance(run)
        assert after.status == "quarantined", after.status
        assert reason in (after.reason or ""), after.reason
        assert (after.due_at, after.owner) == (None, None)
        assert (len(self.effects.calls), len(self.effects.models), _entries(run)) == before
        Run.objects.filter(id=run).update(due_at="2000-01-01T00:00:00Z")
        assert self.advance(run).status == "quarantined"  # also after a hint
        assert (len(self.effects.calls), len(self.effects.models), _entries(run)) == before


@pytest.fixture
def target(by_hand: None, cast: Cast) -> Iterator[Target]:
    target = Target()
    yield target
    target.close()


def _entries(run: UUID) -> int:
    return JournalEntry.objects.filter(run_id=run).count()


def _robbed(request: ToolRequest) -> ToolResult:
    """Another worker took the run while the tool was under way."""
    with pool.open_own() as own:
        own.execute(
            "UPDATE runtime_run SET epoch = epoch + 1, owner = %s WHERE id = %s",
            (uuid4(), request.run),
        )
    return ToolResult(value={"sent": True})
