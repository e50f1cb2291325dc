"""The engine's port for gates: opens requests, and vouches for what people decided of them.

Two digests: the engine's action digest says what would be done; the request digest binds it to
this run, gate and nonce, to what the reviewer is told (risk, sentence, requester, deadline) and
to the policy that asked. The reviewer names the second, the engine asks with the first, and both
are recomputed from the stored row. The engine seals the second when it asks, and the signed
statement names it, so that all of it holds together or not at all.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.db.models import F, Q, Value
from django.db.models.expressions import RawSQL
from django.db.models.functions import Concat

from approvals import (
    audit,
    clock,
    policy,
    stored_rows,
)
from approvals.decisions import closing, open_requests
from approvals.errors import BrokenChain
from approvals.models import Request
from approvals.permissions import principals, request_rules
from approvals.requests import snapshot, statements
from approvals.requests.statements import Statement
from runtime.core.enums import Decision, GateKind, Verdict
from runtime.errors import GateNotOpen, RunEnded
from runtime.ports.access import Actor
from runtime.ports.agents import CallInfo
from runtime.ports.approvals import ActionPicture, ApprovalVoid, NotConfirmed, Part
from runtime.store import pool
from runtime.store.pool import Connection
from runtime.store.tables import ledger


class Gatekeeper:
    """Says which calls need a person and keeps their requests."""

    def gates(self, facts: CallInfo) -> bool:
        """Whether this call waits for a person."""
        return policy.gates(gated=facts.gated, risk=facts.risk)

    def open(
        self, connection: Connection, pictures: Sequence[ActionPicture], *, origin: Collection[str]
    ) -> tuple[Part, ...]:
        """A pending request per picture, as parts of the step that opens their gates."""
        return open_requests.ask(connection, pictures, origin)

    def vouch(self, *, gate: UUID, decision: Decision) -> None:
        """Raise NotConfirmed unless this is what was decided at the gate. Raises KeyMissing."""
        _vouched(_asked(_WHAT_WAS_SAID, gate), decision)

    def confirm(
        self,
        *,
        gate: UUID,
        action_digest: str,
        origin: Collection[str] = (),
        decision: Decision | None = None,
    ) -> None:
        """Raise unless exactly this action was approved at this gate, by a person who may still decide.

        `origin` is the run's origin by its journal, which the rows may lack. A `decision` that is taken up at this
        moment is vouched for by the same look. Raise NotConfirmed if the action was
        never approved or was changed, ApprovalVoid if the decider lost the right or has steered the run since, and
        KeyMissing.
        """
        asked = _asked(_WITH_RIGHTS, gate)
        request = asked.request
        said = None if decision is None else _vouched(asked, decision)
        if request.status != Request.Status.APPROVED:
            raise NotConfirmed(f"the request is {request.status}")
        if said is None:
            snapshot.check_digests(request)
            said = _said(asked)
        if action_digest != request.action_digest:
            raise NotConfirmed("the action to start is not the one that was approved")
        _check_rights(asked, said, origin)

    def expire(self, gate: UUID) -> None:
        """Deny by time, in a transaction of its own. Nothing happens before its time or after anybody."""
        run = Request.objects.filter(gate=gate).values_list("run", flat=True).first()
        if run is None:
            return
        try:
            with transaction.atomic():
                audit.lock_runs(run)
                request, at = Request.objects.get(gate=gate), clock.now()
                if closing.is_expired(request, at):
                    closing.expire(request, at)
        except (GateNotOpen, RunEnded):
            pass  # the gate closed without a decision

    def close(self, *, run: UUID, gates: Sequence[UUID], actor: Actor | None, reason: str) -> None:
        """Cancel what is pending at these gates, inside the caller's transaction."""
        audit.lock_runs(run)
        at = clock.now()
        pending = Request.objects.filter(
            Q(status=Request.Status.PENDING) | Q(effective_at__gt=at), run=run, gate__in=gates
        ).order_by("created_at", "id")
        for request in pending:
            closing.cancel(request, actor=actor, at=at, reason=reason)
        if actor is not None:
            audit.append(
                run=run,
                actor=actor,
                act="cancelled",
                subject=f"run {run}",
                detail={"reason": reason},
                at=at,
            )

    def join(self, *, run: UUID, person: str) -> None:
        """Exclude a person who steers the run from deciding in it. The caller holds the run's row."""
        rows = Request.objects.filter(~Q(excluded__contains=[person]), run=run)
        # Decided requests too: a decision can be undone, and this person's own decisions no longer count.
        rows.update(excluded=RawSQL("excluded || to_jsonb(%s::text)", [person]))

    def note(self, *, run: UUID, actor: Actor, act: str, detail: dict[str, str | None]) -> None:
        """Write the audit row of what somebody did to a run, inside the caller's transaction."""
        audit.lock_runs(run)
        audit.append(
            run=run, actor=actor, act=act, subject=f"run {run}", detail=detail, at=clock.now()
        )

    def forget(self, *, run: UUID, at: datetime, head: str) -> None:
        """Take arguments and sentence off every request of the run; what was decided, and its digests, stay."""
        audit.lock_runs(run)
        requests = Request.objects.filter(run=run, removed_at=None)
        requests.update(
            args="{}",
            sentence=Concat(F("tool"), Value(" (removed under retention)")),
            removed_at=at,
        )
        audit.append(
            run=run,
            actor=None,
            act="removed",
            subject=f"run {run}",
            detail={"head": head},
            at=at,
        )

    def problem_of(self, run: UUID) -> str | None:
        """What is wrong with the run's audit rows, None if they hold. Raises KeyMissing."""
        try:
            audit.verify(run)
        except BrokenChain as broken:
            return f"row {broken.seq} {broken.why}"
        return None

    def approvals_of(self, gates: Sequence[UUID]) -> dict[UUID, UUID]:
        """The request of each gate that has one, by gate."""
        return dict(Request.objects.filter(gate__in=gates).values_list("gate", "id"))


_ASK = f"""
    SELECT (SELECT count(*) FROM approvals_auditentry a
            WHERE a.run_id = r.run_id AND a.act = %(undone)s AND a.subject = 'request ' || r.id),
        clock_timestamp(), {{held}}, {stored_rows.COLUMNS}
    FROM approvals_request r WHERE r.gate = %(gate)s
"""
_WHAT_WAS_SAID = _ASK.format(held="NULL")
_WITH_RIGHTS = _ASK.format(held=principals.held("r.decided_by"))


# Checking what was decided


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A request as it is stored, and how many decisions on it were taken back by then; `at` is the database's time.

    `held` is what the rights of the stored decider rest on, if they were asked for.
    """

    request: Request
    undone: int
    at: datetime
    held: str | None


def _asked(statement: str, gate: UUID) -> _Asked:
    """Everything that may have changed, in one look. Raises NotConfirmed if there is no such request."""
    with pool.asking() as connection:
        row = pool.row(connection, statement, {"undone": audit.UNDONE, "gate": gate})
    if row is None:
        raise NotConfirmed("nobody was asked")
    undone, at, held = row[:3]
    return _Asked(request=stored_rows.read(row[3:]), undone=undone, at=clock.told(at), held=held)


def _vouched(asked: _Asked, decision: Decision) -> Statement | None:
    """The statement of this decision, None if time made it. Raises NotConfirmed if it is another, and KeyMissing."""
    snapshot.check_digests(asked.request)
    if decision.verdict is Verdict.EXPIRE:
        _check_expired(asked, decision)
        return None
    said = _said(asked)
    if said.by in (asked.request.requester, *asked.request.origin):
        raise NotConfirmed(f"{said.by}, who decided, is in the run's origin")
    if (said.verdict, said.by, said.reason, said.result) != (
        decision.verdict,
        decision.by,
        decision.reason,
        statements.result_digest(decision),
    ):
        raise NotConfirmed("the decision to take up is not the one that was signed")
    return said


def _said(asked: _Asked) -> Statement:
    """The statement, made in time. Raises NotConfirmed, KeyMissing."""
    request = asked.request
    said = statements.read(request)
    if request.expires_at is not None and said.at >= request.expires_at:
        raise NotConfirmed("the request had expired when it was decided")
    again = said.verdict is Verdict.RUN_AGAIN
    if again and request.not_before is not None and said.at < request.not_before:
        raise NotConfirmed("the first start may still have been under way")
    if said.effective_at is not None and said.effective_at > asked.at:
        raise NotConfirmed("the decision can still be taken back")
    if said.undone != asked.undone or ledger.holds(ledger.undone(request.id, said.undone + 1)):
        raise NotConfirmed("the decision was taken back")
    snapshot.check_seal(request)
    return said


def _check_rights(asked: _Asked, said: Statement, origin: Collection[str]) -> None:
    """Raise ApprovalVoid unless the decider, who is the stored one, may still decide."""
    principal = principals.from_rights(Actor(person=said.by), asked.held, said.at, past=True)
    denial = request_rules.denial(principal, asked.request, origin)
    if denial is not None:
        raise ApprovalVoid(f"{said.by} approved it, but may not any more: {denial.detail}")


def _check_expired(asked: _Asked, decision: Decision) -> None:
    """Time signs nothing: that it has come everybody can see."""
    request = asked.request
    if request.status != Request.Status.EXPIRED or request.kind != GateKind.APPROVAL:
        raise NotConfirmed(f"the request of kind {request.kind} is {request.status}")
    if request.expires_at is None or request.expires_at > asked.at:
        raise NotConfirmed("the request has not expired")
    if (decision.by, decision.reason, decision.result) != ("", request.reason, None):
        raise NotConfirmed("the decision to take up is not the one of time")
    snapshot.check_seal(request)
