"""Implements the engine's approvals port: opens requests at gates and verifies the decisions on them.

A request has two digests. The action digest covers the call: tool, schema, arguments, path and effect class. The
request digest covers the action digest, the run, gate and nonce, the policy version, and the text shown to the
reviewer (risk, sentence, requester, deadline). The engine names the first when it verifies, the reviewer the second
when they decide. Both are recomputed from the stored row. The MAC made at opening and the signed statement both cover
the request digest, so a change to any of these values is detected.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from threading import Event
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import F, Q, Value
from django.db.models.expressions import RawSQL
from django.db.models.functions import Concat

from approvals import (
    audit,
    clock,
    stored_rows,
)
from approvals.allowance_acts import uses
from approvals.decisions import (
    closing,
    escalations,
    open_requests,
    outcomes,
    readings,
    version_decisions,
)
from approvals.decisions import votes as votes_of_people
from approvals.decisions.outlooks import Outlooks
from approvals.errors import BrokenChain
from approvals.models import Comment, Handover, Request
from approvals.notices import send
from approvals.permissions import principals, request_rules
from approvals.policies.judge import Facts
from approvals.policy_versions import in_force
from approvals.queries.requests import to_view
from approvals.requests import expiry, snapshot, statements, verification, votes, writers
from approvals.requests.statements import Statement
from runtime.core.enums import BEFORE_CALL, Decision, Risk, Verdict
from runtime.core.events import AllowanceUse
from runtime.errors import GateNotOpen, RunEnded
from runtime.ports.access import Actor, Expression
from runtime.ports.agents import CallInfo
from runtime.ports.approvals import (
    Allowed,
    Approval,
    ApprovalVoid,
    EndedCall,
    NotConfirmed,
    Part,
    PolicyFacts,
    RequestLink,
    ReviewSnapshot,
    Ruling,
)
from runtime.store import pool
from runtime.store.pool import Connection
from runtime.store.tables import ledger


class Approvals:
    """Selects the calls that need approval, and stores and verifies their requests."""

    def __init__(self) -> None:
        self._outlooks = Outlooks()

    def judge(self, info: CallInfo, facts: PolicyFacts) -> Ruling:
        """Evaluate the call by the policy in force. Raises PolicyBroken: then the engine opens a hold."""
        _, found = in_force.judge(
            Facts(
                tool=info.tool,
                path=facts.path,
                args=facts.args,
                risk=info.risk,
                gated=info.gated,
                effect=str(info.effect),
                requester=facts.requester,
            )
        )
        return Ruling(
            gated=found.approval,
            expires_in=found.expires_after,
            extends_by=found.extends_by,
        )

    def allow(self, shown: ReviewSnapshot, taken: Mapping[UUID, int]) -> Allowed | None:
        """Return the allowance that passes this call, None if people must be asked."""
        return uses.allow(shown, taken)

    def claim_query(self) -> Expression:
        """Return the query for the last row of the run's audit chain."""
        return audit.LAST_OF_CLAIM

    def open(
        self,
        connection: Connection,
        snapshots: Sequence[ReviewSnapshot],
        *,
        origin: Collection[str],
        at: datetime | None = None,
        read: Any = None,
    ) -> tuple[Part, ...]:
        """Build a request for each snapshot, as parts of the step that opens their gates."""
        if at is None or read is None:
            at, last = open_requests.last_audit_row(connection, snapshots[0].run)
        else:
            last = audit.Last(seq=read[0], hash=read[1])
        return open_requests.build(snapshots, origin, at=at, last=last)

    def outcomes(self, ended: Sequence[EndedCall], *, position: int) -> tuple[Part, ...]:
        """Build the rows of calls that end, as a part of their step."""
        return (outcomes.recorded(ended, position=position),)

    def verify_decision(self, *, gate: UUID, decision: Decision) -> bool:
        """Raise NotConfirmed unless this is the signed decision at the gate. Raises KeyMissing.

        Return whether it is an expiry with which the run fails.
        """
        stored = _read(_REQUEST, gate)
        return _verified(stored, decision) is None and expiry.fails_run(stored.request)

    def verify_approval(
        self,
        *,
        gate: UUID,
        action_digest: str,
        risk: Risk | None = None,
        origin: Collection[str] = (),
        reviewers: Collection[str] = (),
        decision: Decision | None = None,
    ) -> Approval:
        """Return the approval of exactly this action at this gate, by a person who may still decide; else raise.

        `origin` is the run's origin from its journal, because the rows may lack some of it. The `reviewers` wrote to
        the run, see `requests.writers`. If a `decision` is given, the same query verifies it. Raises NotConfirmed if
        the action was not approved or was changed. Raises ApprovalVoid if the reviewer lost the right to decide or has
        since steered the run, or if `risk`, that of the call now, is above the one shown. Raises KeyMissing.
        """
        stored = _read(_REQUEST_WITH_RIGHTS, gate)
        request = stored.request
        origin = writers.barred(request, origin, reviewers)
        if request.allowance is not None and decision is None:
            if action_digest != request.action_digest:
                raise NotConfirmed("the action to start differs from the allowed one")
            return uses.verify(request, origin, risk)
        said = None if decision is None else _verified(stored, decision)
        if request.status != Request.Status.APPROVED:
            raise NotConfirmed(f"the request is {request.status}")
        if said is None:
            snapshot.check_digests(request)
            said = _statement(stored)
        edited = said.verdict is Verdict.EDIT
        if action_digest != (said.result if edited else request.action_digest):
            raise NotConfirmed("the action to start differs from the approved one")
        if risk is not None and _RISKS.index(risk) > _RISKS.index(Risk(request.risk)):
            raise ApprovalVoid(
                f"it was approved at {request.risk} risk, and its risk is {risk} now"
            )
        voters = _check_rights(stored, said, origin)
        return Approval(by=voters or (said.by,), comment=said.reason or None)

    def schema_at(self, gate: UUID) -> dict[str, Any] | None:
        """Return the schema of the arguments in the request at this gate, None if it is missing or unreadable."""
        with pool.in_transaction() as connection:
            row = pool.row(connection, _SCHEMA, {"gate": gate})
        with suppress(ValueError, RecursionError):
            schema = json.loads(row[0] if row else "")
            return schema if isinstance(schema, dict) else None
        return None

    def version_decided(
        self,
        *,
        run: UUID,
        agent: str,
        before: str,
        after: str,
        requester: str,
        origin: Collection[str],
    ) -> str | None:
        """Return the admin whose signed decision on these versions counts for a run of these people, or None."""
        return version_decisions.decider(
            run=run, agent=agent, before=before, after=after, requester=requester, origin=origin
        )

    def expire(self, gate: UUID) -> None:
        """Expire the gate's request in a transaction. Does nothing before its deadline or if it is closed."""
        run = Request.objects.filter(gate=gate).values_list("run", flat=True).first()
        if run is None:
            return
        with suppress(GateNotOpen, RunEnded), transaction.atomic():  # closed without a decision
            audit.lock_runs(run)
            request, at = Request.objects.get(gate=gate), clock.now()
            if closing.is_expired(request, at):
                closing.expire(request, at)

    def send_mail(self, stop: Event) -> None:
        """Mail people about requests that wait for them."""
        send.send_due(stop)

    def look_ahead(self, stop: Event) -> None:
        """Record the steps of escalation that have begun, and mark requests that too few people can decide."""
        try:
            escalations.record_begun(stop)
        finally:
            self._outlooks.mark(stop)

    def close(self, *, run: UUID, gates: Sequence[UUID], actor: Actor | None, reason: str) -> None:
        """Cancel the pending requests at these gates, inside the caller's transaction."""
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

    def join(self, *, run: UUID, person: str, reviewer: bool = False) -> None:
        """Exclude a person who steers the run from deciding in it. The caller has locked the run's row."""
        rows = Request.objects.filter(~Q(excluded__contains=[person]), run=run)
        if reviewer:
            rows = rows.exclude(pk__in=writers.still_decided(rows))
        # Decided requests too: a decision can be undone, and this person's own decisions no longer count.
        rows.update(excluded=RawSQL("excluded || to_jsonb(%s::text)", [person]))

    def record_audit(
        self, *, run: UUID, actor: Actor, act: str, detail: dict[str, str | None]
    ) -> None:
        """Record a user's act on a run in the audit, inside the caller's transaction."""
        audit.lock_runs(run)
        audit.append(
            run=run, actor=actor, act=act, subject=f"run {run}", detail=detail, at=clock.now()
        )

    def erase(self, *, run: UUID, at: datetime, head: str) -> None:
        """Erase arguments and sentence of every request of the run, how it was read, and comments.

        Decisions and digests stay.
        """
        audit.lock_runs(run)
        readings.erase(run)
        for texts in (Comment, Handover):
            texts.objects.filter(request__run=run).delete()
        requests = Request.objects.filter(run=run, removed_at=None)
        requests.filter(edited__isnull=False).update(edited="{}")
        requests.update(
            args="{}",
            preview=None,
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

    def problem_of_use(self, gate: UUID, use: AllowanceUse) -> str | None:
        """Say why the stored use of an allowance does not verify; None if it does."""
        return uses.problem_of(gate, use)

    def problem_of(self, run: UUID) -> str | None:
        """Name the first problem of the run's audit rows, None if they verify. Raises KeyMissing."""
        try:
            audit.verify(run)
        except BrokenChain as broken:
            return f"row {broken.seq} {broken.why}"
        return None

    def requests_by_gate(self, gates: Sequence[UUID]) -> dict[UUID, UUID]:
        """Return the request of each gate that has one, by gate."""
        return dict(Request.objects.filter(gate__in=gates).values_list("gate", "id"))

    def links_by_gate(self, gates: Sequence[UUID]) -> dict[UUID, RequestLink]:
        """Return the request of each gate with its sentence, which names a row that does not verify."""
        views = [to_view(row, None) for row in Request.objects.filter(gate__in=gates)]
        return {view.gate: RequestLink(id=view.id, sentence=view.sentence) for view in views}


_SCHEMA = """
    SELECT coalesce(s.body, r.schema) FROM approvals_request r
    LEFT JOIN approvals_toolschema s ON s.digest = r.schema WHERE r.gate = %(gate)s
"""
_RISKS = tuple(Risk)  # from the lowest to the highest
_QUERY = f"""
    SELECT (SELECT count(*) FROM approvals_auditentry a
            WHERE a.run_id = r.run_id AND a.act = %(undone)s AND a.subject = 'request ' || r.id),
        clock_timestamp(), {{held}}, {{votes}}, {stored_rows.COLUMNS}
    FROM approvals_request r WHERE r.gate = %(gate)s
"""
_REQUEST = _QUERY.format(held="NULL", votes=votes.sql())
_REQUEST_WITH_RIGHTS = _QUERY.format(
    held=principals.credentials_sql("r.decided_by"),
    votes=votes.sql(principals.credentials_sql("v.person")),
)


# Verifying a decision


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    """A stored request and the number of undone decisions on it, at the database's time `at`.

    `held` holds the groups and assignments of the stored reviewer, None if they were not queried.
    """

    request: Request
    undone: int
    at: datetime
    held: str | None
    votes: str | None


def _read(statement: str, gate: UUID) -> _Stored:
    """Read every value that may have changed, in one query. Raises NotConfirmed if there is no such request."""
    with pool.in_transaction() as connection:
        row = pool.row(connection, statement, {"undone": audit.UNDONE, "gate": gate})
    if row is None:
        raise NotConfirmed("the gate has no request")
    undone, at, held, cast = row[:4]
    request = stored_rows.read(row[4:])
    return _Stored(request=request, undone=undone, at=clock.to_utc(at), held=held, votes=cast)


def _verified(stored: _Stored, decision: Decision) -> Statement | None:
    """Return the statement of this decision, None if the clock decided.

    Raises NotConfirmed if they differ, KeyMissing.
    """
    snapshot.check_digests(stored.request)
    if decision.verdict is Verdict.EXPIRE or not decision.by:
        _check_expired(stored, decision)
        return None
    said = _statement(stored)
    for person in (said.by, said.absent):
        if person in (stored.request.requester, *stored.request.origin):
            raise NotConfirmed(f"{person}, who decided, is in the run's origin")
    if (said.verdict, said.by, said.reason, said.result) != (
        decision.verdict,
        decision.by,
        decision.reason,
        statements.result_digest(decision),
    ):
        raise NotConfirmed("the decision differs from the signed one")
    if decision.edit is not None:
        if decision.result is not None:
            raise NotConfirmed("an edited call has no result yet")
        snapshot.check_edit(stored.request, decision.edit.args, said.result)
    return said


def _statement(stored: _Stored) -> Statement:
    """Return the statement if it counts and was made in time. Raises NotConfirmed, KeyMissing."""
    request = stored.request
    said = statements.read(request)
    verification.check_edited(request, said)
    if request.expires_at is not None and said.at >= request.expires_at:
        raise NotConfirmed("the request had expired when it was decided")
    again = said.verdict is Verdict.RUN_AGAIN
    if again and request.not_before is not None and said.at < request.not_before:
        raise NotConfirmed("the first start may still have been running")
    if said.effective_at is not None and said.effective_at > stored.at:
        raise NotConfirmed("the decision can still be undone")
    if said.undone != stored.undone or ledger.contains(ledger.undone(request.id, said.undone + 1)):
        raise NotConfirmed("the decision was undone")
    snapshot.check_seal(request)
    _counted(stored, said)
    return said


def _counted(stored: _Stored, said: Statement) -> tuple[votes.Cast, ...]:
    """Verify every vote, and return those that count. Raises NotConfirmed unless they suffice, KeyMissing."""
    cast = votes.read(stored.request, stored.votes)
    return votes.check_counted(stored.request, said, cast)


def _check_rights(stored: _Stored, said: Statement, origin: Collection[str]) -> tuple[str, ...]:
    """Raise ApprovalVoid unless the statement's reviewer, who is the stored one, and all voters may still decide.

    Return the voters.
    """
    principal = principals.from_rights(Actor(person=said.by), stored.held, said.at, past=True)
    denial = request_rules.denial_for(principal, stored.request, said.absent, origin, said.at)
    if denial is not None:
        raise ApprovalVoid(f"{said.by} approved it, but may no longer decide: {denial.detail}")
    if said.verdict is Verdict.EDIT:
        _check_edited_rule(stored.request, said, principal)
    counted = _counted(stored, said)
    for vote in counted:
        lost = votes_of_people.lost(vote, stored.request, origin)
        if lost is not None:
            raise ApprovalVoid(f"{vote.person} approved it, but may no longer decide: {lost}")
    return tuple(vote.person for vote in counted)


def _check_edited_rule(
    request: Request, said: Statement, principal: principals.Principal | None
) -> None:
    """Raise ApprovalVoid if the policy demands more for the edited call than the person who edited it.

    The policy may have raised the risk of the request, so the call is evaluated at each risk that may be its tool's.
    """
    order = tuple(Risk)
    for risk in order[: order.index(Risk(request.risk)) + 1]:
        _check_edited_at(risk, request, said, principal)


def _check_edited_at(
    risk: Risk, request: Request, said: Statement, principal: principals.Principal | None
) -> None:
    _, found = in_force.judge(
        Facts(
            tool=request.tool,
            path=tuple(request.path),
            args=json.loads(request.edited or "{}"),
            risk=risk,
            gated=True,
            effect=request.effect,
            requester=request.requester,
        )
    )
    stands = principal.stands_for if principal else ()
    editor = next((one for one in stands if one.person == said.absent), principal)
    demands = found.demands
    if demands is not None and (
        demands.quorum > 1
        or editor is None
        or not demands.stages[0].admits(editor.person, editor.groups)
        or (demands.reason and not said.reason)
    ):
        raise ApprovalVoid(
            f"the rule {demands.rule} demands more than {said.by} for the edited call"
        )


def _check_expired(stored: _Stored, decision: Decision) -> None:
    """Raise NotConfirmed unless the request expired, and its demands named this consequence.

    An expiry is not signed: the clock proves it.
    """
    request = stored.request
    if request.status != Request.Status.EXPIRED or request.kind not in BEFORE_CALL:
        raise NotConfirmed(f"the request of kind {request.kind} is {request.status}")
    if request.expires_at is None or request.expires_at > stored.at:
        raise NotConfirmed("the request has not expired")
    snapshot.check_seal(request)
    if decision != expiry.decision(request) or decision.reason != request.reason:
        raise NotConfirmed("the decision differs from the recorded expiry")
