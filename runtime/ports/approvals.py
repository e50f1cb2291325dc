"""What people are asked, and what they decided; implemented by approvals."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

import psycopg

from runtime.core.enums import (
    Decision,
    EffectClass,
    GateKind,
    Risk,
)
from runtime.ports.access import Actor
from runtime.ports.agents import CallInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewSnapshot:
    """The frozen snapshot of one call behind a gate: exactly what will run, or what is in doubt.

    `path` goes from the root agent over sub-agents to the tool; `action_digest` binds it all.
    `expires_at` is when time itself decides. `not_before` is when a call in doubt may run again:
    after its intent, its deadline and a lease, nothing of the first start can be under way.
    `origin` lists the people in the run's origin, who cannot decide in it.

    Of a halt (a hold, a limit, a changed version) `call` and `tool` are empty, `path` ends at the agent,
    `sentence` says why it stopped and `args` what people need to know to decide.
    """

    run: UUID
    gate: UUID
    kind: GateKind
    frame: str
    call: str
    tool: str
    args: dict[str, Any]
    schema: dict[str, Any]
    path: tuple[str, ...]
    effect: EffectClass
    risk: Risk
    sentence: str
    action_digest: str
    requester: str
    origin: tuple[str, ...] = ()
    expires_at: datetime | None = None
    not_before: datetime | None = None
    result_schema: dict[str, Any] | None = None


class NotConfirmed(Exception):
    """A decision does not match what was decided, or nobody signed it: the run is parked."""


class ApprovalVoid(Exception):
    """The approval is genuine, but does not hold any more: people are asked again.

    The decider lost the right, or has steered the run since.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of a statement of the engine's: `INSERT … SELECT … FROM run`, empty if that writes nothing.

    `parameters` are named so that they meet none of another part. `overtaken` is the constraint whose violation
    says that another transaction was faster: then the step is built again. A `required` part returns the row
    that it has to write.
    """

    name: str
    sql: str
    parameters: dict[str, object]
    overtaken: str | None = None
    required: bool = False


class Approvals(Protocol):
    """Says which calls need a person and keeps their requests; implemented by approvals."""

    def requires_approval(self, info: CallInfo) -> bool:
        """Whether this call waits for a person. Policy may be stricter than the tool, never laxer."""

    def open(
        self,
        connection: psycopg.Connection[Any],
        snapshots: Sequence[ReviewSnapshot],
        *,
        origin: Collection[str],
    ) -> tuple[Part, ...]:
        """What the step that opens these gates of one run has to write: a request per snapshot, and its audit.

        Nothing is written here. `origin` are the people the run comes from, as its row says.
        """

    def verify_decision(self, *, gate: UUID, decision: Decision) -> None:
        """When a decision is taken up: raise NotConfirmed unless the web signed exactly this one.

        A decision by time itself (`expire`) has no signature. Raises KeyMissing.
        """

    def verify_approval(
        self,
        *,
        gate: UUID,
        action_digest: str,
        origin: Collection[str] = (),
        decision: Decision | None = None,
    ) -> None:
        """Just before an approved call starts: return if exactly this action was approved, and still is.

        A `decision` that is taken up with the start is verified by the same query.
        `origin` is the run's origin by its journal: an approval by one of these people does not count.
        Raises NotConfirmed, ApprovalVoid, or KeyMissing.
        """

    def expire(self, gate: UUID) -> None:
        """Settle the gate by time, in a transaction of its own, unless somebody was faster."""

    def close(self, *, run: UUID, gates: Sequence[UUID], actor: Actor | None, reason: str) -> None:
        """Cancel what is still pending at these gates, inside the caller's transaction.

        `actor` cancels the run and is audited, also if it waits at no gate; None is the engine itself.
        """

    def join(self, *, run: UUID, person: str) -> None:
        """Exclude a person who steers the run from deciding in it, inside the caller's transaction."""

    def record_audit(
        self, *, run: UUID, actor: Actor, act: str, detail: dict[str, str | None]
    ) -> None:
        """Write the audit row of what somebody did to a run, inside the caller's transaction."""

    def erase(self, *, run: UUID, at: datetime, head: str) -> None:
        """Remove what people were shown of the calls of a run that is over, in the caller's transaction.

        Decisions, digests and signatures stay. It is audited, with `head`, the MAC of the journal's last entry.
        """

    def problem_of(self, run: UUID) -> str | None:
        """What is wrong with the run's audit rows, in a sentence; None if they hold. Raises KeyMissing."""

    def requests_by_gate(self, gates: Sequence[UUID]) -> dict[UUID, UUID]:
        """The approval request of each gate that has one, by gate, for whoever shows the gates."""
