"""Implements the engine's port for gates in memory: open gates, snapshots and decisions."""

from collections.abc import Collection, Sequence
from datetime import datetime
from uuid import UUID

from runtime.core.enums import Decision, Verdict
from runtime.ports.access import Actor
from runtime.ports.agents import CallInfo
from runtime.ports.approvals import ActionPicture, NotConfirmed, Part
from runtime.store.pool import Connection


class Gatekeeper:
    """Implements runtime.ports.approvals.Gatekeeper; a decision holds for exactly the action that was shown."""

    def __init__(self) -> None:
        self.shown: dict[UUID, ActionPicture] = {}
        self.said: dict[UUID, Decision] = {}

    def gates(self, facts: CallInfo) -> bool:
        return facts.gated

    def show(self, pictures: Sequence[ActionPicture]) -> None:
        self.shown |= {picture.gate: picture for picture in pictures}

    def open(
        self, connection: Connection, pictures: Sequence[ActionPicture], *, origin: Collection[str]
    ) -> tuple[Part, ...]:
        """Do nothing: gates are not written to Postgres; see `show`."""
        return ()

    def vouch(self, *, gate: UUID, decision: Decision) -> None:
        if self.said.get(gate) != decision:
            raise NotConfirmed("no person made this decision")

    def confirm(
        self,
        *,
        gate: UUID,
        action_digest: str,
        origin: Collection[str] = (),
        decision: Decision | None = None,
    ) -> None:
        if decision is not None:
            self.vouch(gate=gate, decision=decision)
        said = self.said.get(gate)
        allowed = said is not None and said.verdict in (Verdict.APPROVE, Verdict.RUN_AGAIN)
        if not allowed or self.shown[gate].action_digest != action_digest:
            raise NotConfirmed("it is not what was approved")

    def expire(self, gate: UUID) -> None:
        """Do nothing: the test moves the time; see Flow.expire."""

    def close(self, *, run: UUID, gates: Sequence[UUID], actor: Actor | None, reason: str) -> None:
        """Do nothing: a closed gate leaves the continuation."""

    def join(self, *, run: UUID, person: str) -> None:
        """Do nothing: in a test, a person who steers the run may decide too."""

    def note(self, *, run: UUID, actor: Actor, act: str, detail: dict[str, str | None]) -> None:
        """Do nothing: a test has no audit."""

    def forget(self, *, run: UUID, at: datetime, head: str) -> None:
        """Do nothing: a test erases no old data."""

    def problem_of(self, run: UUID) -> str | None:
        return None

    def approvals_of(self, gates: Sequence[UUID]) -> dict[UUID, UUID]:
        return {}
