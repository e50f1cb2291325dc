"""Verifies decisions for the engine: that people made them, that nothing changed since, and that they still may decide.

A request has two digests. The action digest covers the call: tool, schema, arguments, path and effect class. The
request digest covers the action digest, the run, gate and nonce, the policy version, and the text shown to the
reviewer (risk, sentence, requester, deadline). The engine names the first when it verifies, the reviewer the second
when they decide. Both are recomputed from the stored row. The MAC made at opening and the signed statement both cover
the request digest, so a change to any of these values is detected.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from approvals.decisions import votes as votes_of_people
from approvals.governance import allowance_uses, policies
from approvals.models import Approval
from approvals.requests import snapshot, verification
from approvals.rights import approval_rights, principals
from approvals.rules import policy
from approvals.signed import audit, rows, statements, votes
from approvals.signed.statements import Statement
from runtime.core.values.enums import RISKS, Decision, Risk
from runtime.core.values.verdicts import BEFORE_CALL, VERDICTS
from runtime.ports.access import Actor
from runtime.ports.approvals import ApprovalVoid, NotConfirmed, VerifiedApproval
from runtime.store import pool
from runtime.store.tables import used_approvals

_QUERY = f"""
    SELECT (SELECT count(*) FROM approvals_auditentry a
            WHERE a.run_id = r.run_id AND a.act = %(undone)s AND a.subject = 'request ' || r.id),
        clock_timestamp(), {{held}}, {{votes}}, {rows.APPROVAL_COLUMNS}
    FROM approvals_approval r WHERE r.gate = %(gate)s
"""
_REQUEST = _QUERY.format(held="NULL", votes=votes.build_votes_sql())
_RIGHTS = principals.build_credentials_sql("r.decided_by")
_REQUEST_WITH_RIGHTS = _QUERY.format(held=_RIGHTS, votes="NULL")
_REQUEST_OF_VOTERS = _QUERY.format(
    held=_RIGHTS, votes=votes.build_votes_sql(principals.build_credentials_sql("v.person"))
)


def verify_decision(*, gate: UUID, decision: Decision, deadline: datetime | None = None) -> bool:
    """Raise NotConfirmed unless this is the signed decision at the gate. Raises KeyMissing.

    Return whether it is an expiry with which the run fails. `deadline` is that of the gate by the journal: a writer of
    the row could remove an extension.
    """
    stored = _read(_REQUEST, gate)
    if _verify_statement(stored, decision) is not None:
        return False
    if deadline is not None and stored.approval.expires_at != deadline:
        raise NotConfirmed("the journal has another deadline")
    return verification.must_fail_run(stored.approval)


def verify_approval(
    *,
    gate: UUID,
    action_digest: str,
    risk: Risk | None = None,
    origin: Collection[str] = (),
    reviewers: Collection[str] = (),
    decision: Decision | None = None,
) -> VerifiedApproval:
    """Return the approval of exactly this action at this gate, by a person who may still decide; else raise.

    `origin` is the run's origin from its journal, because the rows may lack some of it. The `reviewers` wrote to the
    run, see `requests.writers`. If a `decision` is given, the same query verifies it. Raises NotConfirmed if the action
    was not approved or was changed. Raises ApprovalVoid if the reviewer lost the right to decide or has since steered
    the run, or if `risk`, that of the call now, is above the one shown. Raises KeyMissing.
    """
    stored = _read(_REQUEST_WITH_RIGHTS, gate)
    if stored.approval.rule is not None:  # else it has no votes, and the query costs half
        stored = _read(_REQUEST_OF_VOTERS, gate)
    approval = stored.approval
    origin = approval_rights.list_barred(approval, origin, reviewers)
    if approval.allowance is not None and decision is None:
        if action_digest != approval.action_digest:
            raise NotConfirmed("the action to start differs from the allowed one")
        return allowance_uses.verify(approval, origin, risk)
    decided = None if decision is None else _verify_statement(stored, decision)
    if approval.status != Approval.Status.APPROVED:
        raise NotConfirmed(f"the request is {approval.status}")
    if decided is None:
        snapshot.check_digests(approval)
        decided = _read_statement(stored)
    statement, counted = decided
    edited = VERDICTS[statement.verdict].carries == "edit"
    if action_digest != (statement.result if edited else approval.action_digest):
        raise NotConfirmed("the action to start differs from the approved one")
    if risk is not None and RISKS.index(risk) > RISKS.index(Risk(approval.risk)):
        raise ApprovalVoid(f"it was approved at {approval.risk} risk, and its risk is {risk} now")
    _check_rights(stored, statement, counted, origin)
    voters = tuple([vote.person for vote in counted])
    return VerifiedApproval(by=voters or (statement.by,), comment=statement.reason or None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _StoredApproval:
    """A stored request and the number of undone decisions on it, at the database's time `at`.

    `credentials` holds the groups and assignments of the stored reviewer, None if they were not queried.
    """

    approval: Approval
    undone: int
    at: datetime
    credentials: str | None
    votes: str | None


_Decided = tuple[Statement, tuple[votes.Cast, ...]]  # with the votes that count


def _read(statement: str, gate: UUID) -> _StoredApproval:
    """Read every value that may have changed, in one query. Raises NotConfirmed if there is no such request."""
    with pool.join_transaction() as connection:
        row = pool.fetch_row(connection, statement, {"undone": audit.UNDONE, "gate": gate})
    if row is None:
        raise NotConfirmed("the gate has no request")
    undone, at, credentials, cast = row[:4]
    approval = rows.read_approval(row[4:])
    return _StoredApproval(
        approval=approval, undone=undone, at=rows.to_utc(at), credentials=credentials, votes=cast
    )


def _verify_statement(stored: _StoredApproval, decision: Decision) -> _Decided | None:
    """Return the statement of this decision and its votes, None if the clock decided.

    Raises NotConfirmed if they differ, KeyMissing.
    """
    snapshot.check_digests(stored.approval)
    if not VERDICTS[decision.verdict].by_person or not decision.by:
        # An expiry is not signed: the clock proves it, and the demands named this consequence.
        approval = stored.approval
        if approval.status != Approval.Status.EXPIRED or approval.kind not in BEFORE_CALL:
            raise NotConfirmed(f"the request of kind {approval.kind} is {approval.status}")
        if approval.expires_at is None or approval.expires_at > stored.at:
            raise NotConfirmed("the request has not expired")
        snapshot.check_seal(approval)
        if (
            decision != verification.build_expiry_decision(approval)
            or decision.reason != approval.reason
        ):
            raise NotConfirmed("the decision differs from the recorded expiry")
        return None
    statement, counted = _read_statement(stored)
    for person in (statement.by, statement.absent):
        if person in (stored.approval.requester, *stored.approval.origin):
            raise NotConfirmed(f"{person}, who decided, is in the run's origin")
    if not statement.is_of(decision):
        raise NotConfirmed("the decision differs from the signed one")
    if decision.edit is not None:
        if decision.result is not None:
            raise NotConfirmed("an edited call has no result yet")
        snapshot.check_edit(stored.approval, decision.edit.args, statement.result)
    return statement, counted


def _read_statement(stored: _StoredApproval) -> _Decided:
    """Return the statement if it counts and was made in time, and the votes that count.

    Raises NotConfirmed unless every vote verifies and they suffice, KeyMissing.
    """
    approval = stored.approval
    statement = statements.read(approval)
    verification.check_edited(approval, statement)
    if approval.expires_at is not None and statement.at >= approval.expires_at:
        raise NotConfirmed("the request had expired when it was decided")
    again = VERDICTS[statement.verdict].starts_call
    if again and approval.not_before is not None and statement.at < approval.not_before:
        raise NotConfirmed("the first start may still have been running")
    if statement.effective_at is not None and statement.effective_at > stored.at:
        raise NotConfirmed("the decision can still be undone")
    if statement.undone != stored.undone or used_approvals.has_fact(
        used_approvals.format_undone_line(approval.id, statement.undone + 1)
    ):
        raise NotConfirmed("the decision was undone")
    snapshot.check_seal(approval)
    cast = votes.read(approval, stored.votes)
    return statement, votes.check_counted(approval, statement, cast)


def _check_rights(
    stored: _StoredApproval,
    statement: Statement,
    counted: tuple[votes.Cast, ...],
    origin: Collection[str],
) -> None:
    """Raise ApprovalVoid unless the statement's reviewer, who is the stored one, and all voters may still decide."""
    principal = principals.restore_principal(
        Actor(person=statement.by), stored.credentials, statement.at, past=True
    )
    denial = approval_rights.find_denial_for(
        principal, stored.approval, statement.absent, origin, statement.at
    )
    if denial is not None:
        raise ApprovalVoid(f"{statement.by} approved it, but may no longer decide: {denial.detail}")
    if VERDICTS[statement.verdict].carries == "edit":
        # The policy may have raised the risk of the request, so the call is judged at each one that may be its tool's.
        for risk in RISKS[: RISKS.index(Risk(stored.approval.risk)) + 1]:
            _check_edited(risk, stored.approval, statement, principal)
    voters = {vote.person for vote in counted}
    for vote in counted:
        lost = votes_of_people.find_vote_fault(vote, stored.approval, origin, voters)
        if lost is not None:
            raise ApprovalVoid(f"{vote.person} approved it, but may no longer decide: {lost}")


def _check_edited(
    risk: Risk, approval: Approval, statement: Statement, principal: principals.Principal | None
) -> None:
    """Raise ApprovalVoid if the policy demands more for the edited call than the person who edited it."""
    _, judgement = policies.judge(
        policies.build_facts(approval, json.loads(approval.edited or "{}"), risk)
    )
    absentees = principal.stands_for if principal else ()
    editor = next((absent for absent in absentees if absent.person == statement.absent), principal)
    demands = judgement.demands
    if demands is None:
        return
    # The people to whom the request had escalated count only if it has the same demands. Under another rule they could
    # not decide yet: its steps would begin after its own deadline.
    stages = demands.stages
    if demands == votes.read_demands(approval):
        stages = policy.compute_stages(demands, approval.opened_until, statement.at)
    if (
        demands.quorum > 1
        or editor is None
        or not stages[0].is_eligible(editor.person, editor.groups)
        or (demands.reason and not statement.reason)
        or not demands.accept(statement.authenticated, statement.at)
    ):
        raise ApprovalVoid(
            f"the rule {demands.rule} demands more than {statement.by} for the edited call"
        )
