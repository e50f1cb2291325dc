"""Fakes behind the engine's ports: an effect handler driven by a script per agent, and plain approvals."""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from django.db import transaction
from django.db.models import Q

from agents.testing.approvals import ApprovalStub
from runtime.control.user_actions import settle
from runtime.core.run.continuation import GivenReply
from runtime.core.run.events import GateExtended, Proposal
from runtime.core.values.budgets import BudgetLimits
from runtime.core.values.call_options import RetryPolicy
from runtime.core.values.enums import CallPreview, Decision, EffectClass, Risk, Verdict
from runtime.errors import GateNotOpen, UnknownAgent
from runtime.ports.access import Actor, Expression
from runtime.ports.agents import (
    AgentInfo,
    CallInfo,
    CallRejected,
    Instructions,
    TurnBoundary,
    VersionChange,
)
from runtime.ports.approvals import (
    Allowed,
    ApprovalVoid,
    NotConfirmed,
    PolicyFacts,
    ReviewSnapshot,
    Ruling,
    VerifiedApproval,
)
from runtime.ports.effects import (
    Abort,
    Keep,
    ModelAnswer,
    ModelFailure,
    ModelRequest,
    Outcome,
    PreviewRequest,
    ToolRequest,
    ToolResult,
)

CUT_USAGE = {"input_tokens": 5, "output_tokens": 1}  # of a model call that was ended
AT_ONCE = RetryPolicy(attempts=3, base=0.0, ceiling=0.0)

Script = Callable[[ModelRequest], Outcome]
ToolBody = Callable[[ToolRequest], Outcome]


def say(text: str) -> ModelAnswer:
    return ModelAnswer(reply={"say": text}, text=text)


def ask(*calls: tuple[str, Any]) -> ModelAnswer:
    proposals = tuple(Proposal(tool=tool, args=args) for tool, args in calls)
    return ModelAnswer(reply={"calls": [list(call) for call in calls]}, text="", calls=proposals)


def turns(*replies: Outcome) -> Script:
    """A model that gives these replies one after the other, by the number of its own earlier ones."""

    def reply(request: ModelRequest) -> Outcome:
        earlier = [message for message in request.messages if message["role"] == "model"]
        return replies[len(earlier)]

    return reply


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeTool:
    effect: EffectClass = EffectClass.WRITE
    gated: bool = False
    retry: RetryPolicy = AT_ONCE
    expires_in: float | None = None
    deadline: float = 30.0
    waits: Literal["", "time", "event"] = ""
    question: bool = False
    plan: bool = False
    result_schema: dict[str, Any] | None = None
    preview: Callable[[PreviewRequest], CallPreview] | None = None
    body: ToolBody = field(default=lambda request: ToolResult(value={"done": request.args}))


class FakeAccess:
    """Everybody may do and read everything."""

    def require(self, actor: Actor, scope: str) -> None:
        return None

    def rights(self, actor: Actor) -> Expression:
        return Expression(sql="true", parameters={})

    def require_read(self, actor: Actor, scope: str, rights: Any, *, at: datetime) -> None:
        return None

    def select_readable_runs(self, actor: Actor) -> Q:
        return Q()

    def may_control(self, actor: Actor, requester: str) -> bool:
        return True

    may_cancel = may_fork = may_control

    def require_agents(self, actor: Actor) -> None:
        return None

    def may_read_continuations(self, actor: Actor) -> bool:
        return True


class FakeEffects:
    """Agents are scripts, tools are functions; everything performed is recorded."""

    def __init__(self, agents: dict[str, Script], tools: dict[str, FakeTool]) -> None:
        self.agents = agents
        self.tools = tools
        self.models: list[ModelRequest] = []
        self.keeps: list[Keep | None] = []
        self.ended: list[ModelRequest] = []
        self.calls: list[ToolRequest] = []
        self.changes: dict[tuple[str, str], VersionChange] = {}
        self.released: dict[str, str] = {}
        self.holds: list[str] = []
        self.budgets: dict[str, BudgetLimits] = {}
        self.code: set[str] = set()  # agents whose replies are there at once, and cost nothing
        self.lists: set[str] = set()  # agents whose sub-agents work on items
        self._lock = threading.Lock()

    def agent(self, name: str) -> AgentInfo:
        if name not in self.agents:
            raise UnknownAgent(name)
        fingerprint = self.released.get(name, f"sha256:{name}")
        return AgentInfo(
            name=name,
            fingerprint=fingerprint,
            prompt="sha256:p",
            plan=None,
            budget=self.budgets.get(name),
            items=name in self.lists,
        )

    def read_fingerprints(self) -> dict[str, str]:
        return {name: self.agent(name).fingerprint for name in self.agents}

    def compare_version(self, name: str, fingerprint: str) -> VersionChange | None:
        """Return the change in `changes`, else one that needs no approval."""
        info = self.agent(name)
        if info.fingerprint == fingerprint:
            return None
        return self.changes.get((name, fingerprint), VersionChange(agent=info, changes=()))

    def is_scripted(self, agent: str) -> bool:
        return agent in self.code

    def receive(self, agent: str, value: Any) -> Any:
        return value

    def instruct(
        self, agent: str, given: Any, *, at: datetime, number: int | None = None
    ) -> Instructions:
        return Instructions()

    def describe(self, *, agent: str, tool: str, args: Any) -> CallInfo:
        if tool in self.agents:
            return self._info(tool, FakeTool(effect=EffectClass.IDEMPOTENT), delegate=tool)
        if tool not in self.tools:
            raise CallRejected(f"there is no tool {tool}")
        return self._info(tool, self.tools[tool], delegate=None)

    def hold_reason(self, position: TurnBoundary) -> str:
        return self.holds.pop(0) if self.holds else ""

    def preview(self, request: PreviewRequest) -> CallPreview:
        preview = self.tools[request.tool].preview
        assert preview is not None
        return preview(request)

    def perform(self, request: ToolRequest) -> Outcome:
        with self._lock:
            self.calls.append(request)
        return self.tools[request.tool].body(request)

    def start_model_call(
        self, request: ModelRequest, deliver: Callable[[Outcome], None], keep: Keep | None = None
    ) -> Abort:
        """Run each call of a model in a thread of its own, which is abandoned once the call is ended."""
        with self._lock:
            self.models.append(request)
            self.keeps.append(keep)

        def reply() -> None:
            try:
                given = request.fork_reply
                deliver(_given(given) if given else self.agents[request.agent](request))
            except Exception as exc:
                deliver(ModelFailure(error=f"{type(exc).__name__}: {exc}"))

        if request.agent in self.code:
            reply()
        else:
            threading.Thread(target=reply, name="fake model", daemon=True).start()

        def end() -> None:
            self.ended.append(request)
            deliver(ModelFailure(error="ended", partial="so f", tokens=1, usage=CUT_USAGE, cost=2))

        return end

    def _info(self, name: str, tool: FakeTool, delegate: str | None) -> CallInfo:
        return CallInfo(
            tool=name,
            effect=tool.effect,
            risk=Risk.HIGH,
            gated=tool.gated,
            sentence=f"Do {name}",
            schema={"type": "object"},
            schema_digest="sha256:schema",
            deadline=tool.deadline,
            delegate=delegate,
            retry=tool.retry,
            expires_in=tool.expires_in,
            waits=tool.waits,
            question=tool.question,
            plan=tool.plan,
            result_schema=tool.result_schema,
            previews=tool.preview is not None,
        )


class FakeApprovals(ApprovalStub):
    """Gates calls as their tools require, keeps the requests, and confirms them unless `forged`."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[ReviewSnapshot] = []
        self.closed: list[UUID] = []
        self.notes: list[tuple[UUID, Actor, str, dict[str, str | None]]] = []
        self.joined: list[tuple[UUID, str]] = []
        self.edited: dict[UUID, str] = {}
        self.versions: dict[tuple[str, str, str], str] = {}
        self.forged = False
        self.fails = False  # the run, if a request expires
        self.extends_by = 0.0
        self.void = False
        self.allowed: Allowed | None = None

    def allow(self, snapshot: ReviewSnapshot, used: Mapping[UUID, int]) -> Allowed | None:
        return self.allowed

    def judge(self, info: CallInfo, facts: PolicyFacts) -> Ruling:
        return Ruling(gated=info.gated, extends_by=self.extends_by)

    def open(self, connection: Any, snapshots: Sequence[ReviewSnapshot], **_: Any) -> tuple[()]:
        new = [one for one in snapshots if one not in self.requests]  # it may ask again
        self.requests += new
        return ()

    def verify_approval(
        self, *, gate: UUID, action_digest: str, decision: Decision | None = None, **_: Any
    ) -> VerifiedApproval:
        if decision is not None:
            self.verify_decision(gate=gate, decision=decision)
        shown = [snapshot for snapshot in self.requests if snapshot.gate == gate]
        approved = [self.edited.get(gate, snapshot.action_digest) for snapshot in shown]
        if self.forged or approved != [action_digest]:
            raise NotConfirmed("this action was not approved")
        if self.void:
            raise ApprovalVoid("the decider lost the right")
        return VerifiedApproval(by=("bea",), comment="as agreed")

    def read_extension(self, document: str) -> GateExtended:
        if self.forged:
            raise NotConfirmed("no person signed it")
        return super().read_extension(document)

    def verify_decision(
        self, *, gate: UUID, decision: Decision, deadline: datetime | None = None
    ) -> bool:
        if self.forged:
            raise NotConfirmed("no person signed it")
        if decision.edit is not None:
            self.edited[gate] = decision.edit.digest
        return self.fails and decision.verdict is Verdict.EXPIRE

    def find_version_decider(self, *, agent: str, before: str, after: str, **_: Any) -> str | None:
        return self.versions.get((agent, before, after))

    def find_schema(self, gate: UUID) -> dict[str, Any] | None:
        return next((one.schema for one in self.requests if one.gate == gate), None)

    def expire(self, gate: UUID) -> None:
        with suppress(GateNotOpen), transaction.atomic():
            decision = Decision(verdict=Verdict.EXPIRE, by="", reason="expired without a decision")
            settle(gate=gate, decision=decision)

    def close(self, *, run: UUID, gates: Sequence[UUID], actor: Actor | None, reason: str) -> None:
        self.closed += gates

    def join(self, *, run: UUID, person: str, reviewer: bool = False) -> None:
        self.joined.append((run, person))

    def record_audit(
        self, *, run: UUID, actor: Actor, act: str, detail: dict[str, str | None]
    ) -> None:
        self.notes.append((run, actor, act, detail))


def _given(reply: GivenReply) -> ModelAnswer:
    """The reply that a person gave, as a worker's agents read it."""
    return ModelAnswer(reply={"given": reply.text}, text=reply.text, calls=reply.calls, cost=0)
