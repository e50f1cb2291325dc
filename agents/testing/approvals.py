"""Implements the engine's port for gates in memory: open gates, snapshots and decisions."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from threading import Event
from typing import Any
from uuid import UUID

from pydantic import TypeAdapter

from runtime.core.run.events import AllowanceUse, GateExtended
from runtime.core.values.enums import RISKS, Decision, Risk
from runtime.core.values.verdicts import STARTS_CALL
from runtime.ports import approvals
from runtime.ports.access import Actor, Expression
from runtime.ports.agents import CallInfo
from runtime.store.pool import Connection


class ApprovalStub:
    """Implements runtime.ports.approvals.Approvals; a decision is valid for exactly the action that was shown."""

    def __init__(self) -> None:
        self.snapshots: dict[UUID, approvals.ReviewSnapshot] = {}
        self.decisions: dict[UUID, Decision] = {}

    def judge(self, info: CallInfo, facts: approvals.PolicyFacts) -> approvals.Ruling:
        """Say whether the tool requires approval."""
        return approvals.Ruling(gated=info.gated)

    def allow(
        self, snapshot: approvals.ReviewSnapshot, used: Mapping[UUID, int]
    ) -> approvals.Allowed | None:
        """Return None: a test decides every call itself."""
        return None

    def show(self, snapshots: Sequence[approvals.ReviewSnapshot]) -> None:
        """Keep the snapshots of new gates."""
        self.snapshots |= {snapshot.gate: snapshot for snapshot in snapshots}

    def claim_query(self) -> Expression:
        """Read nothing: no run is claimed."""
        return Expression(sql="NULL", parameters={})

    def open(
        self,
        connection: Connection,
        snapshots: Sequence[approvals.ReviewSnapshot],
        *,
        origin: Collection[str],
        at: datetime | None = None,
        read: Any = None,
    ) -> tuple[approvals.StatementPart, ...]:
        """Do nothing: gates are not written to Postgres; see `show`."""
        return ()

    def outcomes(
        self, ended: Sequence[approvals.EndedCall], *, position: int
    ) -> tuple[approvals.StatementPart, ...]:
        """Record nothing: no list shows a run in memory."""
        return ()

    def find_use_problem(self, gate: UUID, use: AllowanceUse) -> str | None:
        """Return None: there are no allowances."""
        return None

    def verify_decision(
        self, *, gate: UUID, decision: Decision, deadline: datetime | None = None
    ) -> bool:
        """Raise NotConfirmed unless the test made this decision. No expiry in a test fails the run."""
        if self.decisions.get(gate) != decision:
            raise approvals.NotConfirmed("no person made this decision")
        return False

    def read_extension(self, document: str) -> GateExtended:
        """Return the extension: a test signs none."""
        return TypeAdapter(GateExtended).validate_json(document)

    def verify_approval(
        self,
        *,
        gate: UUID,
        action_digest: str,
        risk: Risk | None = None,
        origin: Collection[str] = (),
        reviewers: Collection[str] = (),
        decision: Decision | None = None,
    ) -> approvals.VerifiedApproval:
        """Return the approval of exactly this action by the test. Raise NotConfirmed if there is none."""
        if decision is not None:
            self.verify_decision(gate=gate, decision=decision)
        recorded, snapshot = self.decisions.get(gate), self.snapshots[gate]
        if recorded is None or recorded.verdict not in STARTS_CALL:
            raise approvals.NotConfirmed("this action was not approved")
        if action_digest != (recorded.edit.digest if recorded.edit else snapshot.action_digest):
            raise approvals.NotConfirmed("another action was approved")
        if risk is not None and RISKS.index(risk) > RISKS.index(snapshot.risk):
            raise approvals.ApprovalVoid(f"it was approved at {snapshot.risk} risk")
        return approvals.VerifiedApproval(by=(recorded.by,), comment=recorded.reason or None)

    def find_version_decider(
        self,
        *,
        run: UUID,
        agent: str,
        before: str,
        after: str,
        requester: str,
        origin: Collection[str],
    ) -> str | None:
        """Return None: in a test, each version gate is decided."""
        return None

    def find_schema(self, gate: UUID) -> dict[str, Any] | None:
        """Return the schema that the gate showed."""
        return self.snapshots[gate].schema

    def expire(self, gate: UUID) -> None:
        """Do nothing: the test moves the time; see Flow.expire."""

    def send_mail(self, stop: Event) -> None:
        """Do nothing: a test mails no people."""

    def send_messages(self, stop: Event) -> None:
        """Do nothing: a test tells no other programs."""

    def look_ahead(self, stop: Event) -> None:
        """Do nothing: a test has no sweeper."""

    def count_decisions(self) -> None:
        """Do nothing: a test has no sweeper."""

    def close(self, *, run: UUID, gates: Sequence[UUID], actor: Actor | None, reason: str) -> None:
        """Do nothing: a closed gate leaves the continuation."""

    def join(self, *, run: UUID, person: str, reviewer: bool = False) -> None:
        """Do nothing: in a test, a person who steers the run may decide too."""

    def record_audit(
        self, *, run: UUID, actor: Actor, act: str, detail: dict[str, str | None]
    ) -> None:
        """Do nothing: a test has no audit."""

    def erase(self, *, run: UUID, at: datetime, head: str) -> None:
        """Do nothing: a test erases no old data."""

    def collect_evidence(self, run: UUID) -> dict[str, Any]:
        """Return nothing: a test archives no runs."""
        return {}

    def find_prompt_problem(self, name: str, number: int, digest: str) -> str | None:
        """Return None: a test has no versions of prompts."""
        return None

    def is_held(self, run: UUID) -> bool:
        """Return False: a test has no legal holds."""
        return False

    def was_imported(self, run: UUID) -> bool:
        """Return False: a test has no imported runs."""
        return False

    def find_audit_problem(self, run: UUID) -> str | None:
        """Return None: a test has no audit."""
        return None

    def map_requests(self, gates: Sequence[UUID]) -> dict[UUID, UUID]:
        """Return nothing: a test has no approval requests."""
        return {}

    def count_verdicts(self, runs: Sequence[UUID]) -> Mapping[str, int]:
        """Count nothing."""
        return {}

    def map_links(self, gates: Sequence[UUID]) -> dict[UUID, approvals.RequestLink]:
        """Return nothing: a test has no approval requests."""
        return {}
