"""Records a reviewer's decision, and undoes it before it takes effect. No other code may record a person's decision.

The order of checks is part of the contract. A caller who may not read an approval learns nothing about it. One who may
not decide learns nothing about races or digests.

Where the worker previewed the proposed call, it previews an edited one too, before a person can approve it. The
approval is bound to that preview, as any other is to the one of its request.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from django.db import transaction

from approvals import clock
from approvals.decisions import checks, commit, votes
from approvals.errors import AlreadyDecided, NotDecided, TamperedWith, TooEarly, TooLate
from approvals.models import OF_CALL, Approval, ApprovalClaim
from approvals.reads import approval_views, review_times
from approvals.reads.approval_views import ApprovalView
from approvals.requests import snapshot
from approvals.rights import principals
from approvals.signed import audit, statements
from runtime.control import jobs
from runtime.control.edit import FIELD, edit, is_previewed
from runtime.control.user_actions import undo as undo_decision
from runtime.core.values.enums import Decision, Edit, EffectClass, GateKind, Verdict
from runtime.core.values.verdicts import VERDICTS
from runtime.errors import GateNotOpen, InvalidInput, KeyMissing, RequestError, RunEnded, Tampered
from runtime.keyring import sealing
from runtime.ports.access import Actor
from runtime.ports.approvals import NotConfirmed
from runtime.store.tables import used_approvals
from runtime.store.tables.jobs import EditPreviewRow


@dataclass(frozen=True, slots=True, kw_only=True)
class _SentDecision:
    """The values of a decision as the client sent them. `field` names the verdict: `outcome` of a call in doubt."""

    field: str = "verdict"
    verdict: object
    reason: object
    confirm: object
    result: object
    digest: object = None
    grant: object = None
    arguments: object = snapshot.ABSENT
    preview: object = None
    channel: str = commit.PAGE


# Why a result is refused, and why a missing one is, by the field of the verdict.
_RESULT_RULES: Final = {
    "verdict": ("is only for an answer instead of the call", "is required to answer"),
    "outcome": ("is only for a call that happened", "is required if the call happened"),
}


def decide(
    *,
    approval_id: UUID,
    verdict: object,
    digest: object,
    reason: object,
    actor: Actor,
    grant: object = None,
    result: object = snapshot.ABSENT,
    confirm: object = None,
    arguments: object = snapshot.ABSENT,
    preview: object = None,
    channel: str = commit.PAGE,
) -> ApprovalView:
    """Approve, deny, answer, edit or request changes to a call, answer a question, or `continue` or `stop` a frame.

    The values may be of any type. `grant` is how much a limit gate adds to its limits, as in `{"turns": 10}`; null
    removes a limit. `result` is the result that an `answer` gives instead of the call: a JSON value that fits the
    tool's result schema. `arguments` are all the arguments of an `edit`, which approves the call with these instead of
    the proposed ones. If the request has a preview, an edit names the `preview` of its arguments instead, from
    `ask_preview`: the call starts only if it would still do what that says. `confirm` repeats the request's own
    `confirm`, which an approval at high risk must do; an edit repeats the value that its arguments have in that place.
    `channel` is where a person decides without a token, for the history: `batch` is together with others.

    Where the policy demands several people, an approval is a vote, and the one that completes them decides. A denial
    by one person decides, and so does a request for changes, `request_changes`: the call is denied, and the agent is
    asked to propose it again with the changes that `reason` names. Revision MAX_REVISIONS of a call is the last one.
    The same decision again by the person whose decision counts changes nothing, and gets the same answer.

    Raises, in this order: NotFound; Forbidden (`scope`, `requester`, `origin`, `not_eligible`, `given_by_origin`,
    `cooling_off`); AlreadyDecided with the winner, Cancelled or Expired; TamperedWith; DigestMismatch; NotShown;
    InvalidInput naming `digest`, `verdict`, `arguments` or a path in it, `preview`, `confirm`, `reason`, `grant` or
    `result`; AlreadyVoted; Forbidden (`not_eligible`) for a later stage. Nothing is written when it raises, except that
    Expired and refusals are recorded, and that votes which no longer count are deleted.
    """
    sent = _SentDecision(
        verdict=verdict,
        digest=digest,
        reason=reason,
        grant=grant,
        result=result,
        confirm=confirm,
        arguments=arguments,
        preview=preview,
        channel=channel,
    )
    return _settle({"pk": approval_id}, sent, actor)


def resolve(
    *,
    run: UUID,
    gate: UUID,
    outcome: object,
    result: object = snapshot.ABSENT,
    reason: object,
    actor: Actor,
    confirm: object = None,
) -> ApprovalView:
    """Record the outcome of a call in doubt: `happened`, `run_again` or `give_up`.

    `result` is a JSON value that fits the tool's result schema; it is required if the call happened, and not allowed
    otherwise. `confirm` repeats the request's own `confirm`, which running a high-risk call again must do. Raises, in
    this order: NotFound; Forbidden; AlreadyDecided, AlreadyCancelled or Expired; TamperedWith; TooEarly with the time
    from which the call can run again; InvalidInput naming `outcome`; NotShown; InvalidInput naming `confirm`, `reason`,
    `result` or a path in it. Nothing is written when it raises, except that Expired and refusals are recorded.
    """
    sent = _SentDecision(
        field="outcome", verdict=outcome, reason=reason, confirm=confirm, result=result
    )
    return _settle({"run": run, "gate": gate}, sent, actor)


def undo(*, approval_id: UUID, actor: Actor) -> approval_views.ApprovalView:
    """Undo the actor's own decision within the undo window, or withdraw their vote while others must still vote.

    Raises, in this order: NotFound; Forbidden; Cancelled or Expired; NotDecided; AlreadyDecided with the name of the
    decider; TooLate. Nothing is written when it raises, except that refusals are recorded.
    """
    with checks.audit_refusals(actor, pk=approval_id), transaction.atomic():
        audit.lock_run_of(approval_id)
        principal = principals.find_principal(actor)
        approval = approval_views.require_readable(approval_id, principal)
        if not votes.is_for_absent(approval, principal):
            checks.check_right(approval, principal)
        if votes.withdraw(approval, actor):
            review_times.record_undo(approval.id, actor)
            return approval_views.to_view(approval, principal)
        if approval.status == Approval.Status.PENDING:
            raise NotDecided
        if approval.status in (Approval.Status.CANCELLED, Approval.Status.EXPIRED):
            checks.check_open(approval)
        if approval.decided_by != actor.person:
            raise AlreadyDecided(approval.decided_by)
        if approval.effective_at is None or approval.effective_at <= clock.read_time():
            raise TooLate
        try:
            undo_decision(gate=approval.gate)
        except (GateNotOpen, RunEnded) as exc:
            raise TooLate from exc
        _reopen(approval, actor)
        undone = used_approvals.format_undone_line(approval.id, audit.count_undone(approval))
    used_approvals.record_fact(undone)  # after the commit, and before the caller answers
    return approval_views.to_view(approval, principal)


def take_back(*, approval_id: UUID, by: str, actor: Actor) -> bool:
    """Undo an approval by `by` that the actor withdraws with others. Return False if it is final or no longer theirs.

    The caller has checked that the actor may withdraw it.
    """
    with transaction.atomic():
        audit.lock_run_of(approval_id)
        approval = Approval.objects.get(pk=approval_id)
        if approval.status != Approval.Status.APPROVED or approval.decided_by != by:
            return False
        if approval.effective_at is None or approval.effective_at <= clock.read_time():
            return False
        try:
            undo_decision(gate=approval.gate)
        except (GateNotOpen, RunEnded):
            return False
        _reopen(approval, actor)
        undone = used_approvals.format_undone_line(approval.id, audit.count_undone(approval))
    used_approvals.record_fact(undone)
    return True


def require_open(*, approval_id: UUID, digest: object, actor: Actor) -> None:
    """Raise as `decide` does, unless this person may decide the request that they saw."""
    approval = checks.open_request(commit.load(approval_id, actor)).approval
    checks.check_digest(approval, digest)


def ask_preview(
    *, approval_id: UUID, digest: object, arguments: object, actor: Actor
) -> UUID | None:
    """Check the arguments of an edit, without recording it, and have a worker preview the call with them.

    Return the id of the preview, None if the tool makes none. Raises as `decide` does.
    """
    approval = checks.open_request(commit.load(approval_id, actor)).approval
    checks.check_digest(approval, digest)
    checks.check_verdict(Verdict.EDIT, "verdict", GateKind.APPROVAL, approval)
    edit = check_edit(approval, arguments)
    if not _has_preview(approval):
        return None
    return jobs.preview_edit(
        run=approval.run_id, gate=approval.gate, by=actor.person, args=edit.args
    )


def find_preview(*, approval_id: UUID, preview: object, actor: Actor) -> EditPreviewRow | None:
    """Return the preview of an edit that this person asked for last, None if it has another id. Raises NotFound."""
    approval = approval_views.require_readable(approval_id, principals.find_principal(actor))
    return find_edit_preview(approval, preview, actor.person)


def _settle(key: Mapping[str, UUID], sent: _SentDecision, actor: Actor) -> ApprovalView:
    """Record the decision on the approval with this id, or at this gate of this run."""
    with checks.audit_refusals(actor, **key):
        try:
            outcome = _attempt(key, sent, actor)
        except GateNotOpen:  # another action on the run came in between
            with commit.make_last_attempt():
                if "run" in key:
                    audit.lock_runs(key["run"])
                else:
                    audit.lock_run_of(key["pk"])
                outcome = _attempt(key, sent, actor)
        return checks.unwrap_outcome(outcome)


def _attempt(key: Mapping[str, UUID], sent: _SentDecision, actor: Actor) -> checks.Outcome:
    """Check and write. Raises GateNotOpen, with nothing written, if another action on the run came in between."""
    stored = (
        commit.load(key["pk"], actor)
        if "pk" in key
        else commit.load_at_gate(key["run"], key["gate"], actor)
    )
    try:
        loaded = replace(checks.open_request(stored), channel=sent.channel)
    except AlreadyDecided:
        if stored is None or not _is_repeated(stored, sent, actor):
            raise
        return ApprovalView(stored=stored.approval, reader=stored.principal)
    is_late = commit.is_expired(loaded.approval, loaded.at)
    return checks.close(loaded, None if is_late else _build_decision(loaded, sent, actor), actor)


def _is_repeated(loaded: commit.LoadedApproval, sent: _SentDecision, actor: Actor) -> bool:
    """Tell whether this person sends again the very decision that closed the request, as after a lost answer."""
    try:
        return statements.read(loaded.approval).is_of(_build_decision(loaded, sent, actor))
    except (RequestError, NotConfirmed, KeyMissing):
        return False


def _build_decision(loaded: commit.LoadedApproval, sent: _SentDecision, actor: Actor) -> Decision:
    """Validate the values. Raises DigestMismatch, TooEarly, NotShown, InvalidInput."""
    approval = loaded.approval
    if sent.field == "outcome":
        kind = GateKind.IN_DOUBT
        not_before = approval.not_before
        if sent.verdict == Verdict.RUN_AGAIN and not_before and loaded.at < not_before:
            raise TooEarly(not_before)  # the first attempt may still be running
    else:
        checks.check_digest(approval, sent.digest)
        kind = GateKind.APPROVAL if approval.is_in_doubt else GateKind(approval.kind)
    verdict = checks.check_verdict(sent.verdict, sent.field, kind, approval)
    checks.check_shown(loaded, verdict)
    edit = _edit(approval, verdict, sent, actor)
    checks.check_confirmed(approval, verdict, sent.confirm, edit)
    checks.check_revisable(approval, verdict)
    demands = loaded.demands
    checks.check_answer(demands, verdict)
    reason = checks.check_reason(sent.reason, verdict, demands)
    result = checks.check_grant(approval, verdict, sent.grant)
    not_allowed, required = _RESULT_RULES[sent.field]
    if VERDICTS[verdict].carries == "result":
        if sent.result is snapshot.ABSENT:
            raise InvalidInput("result", required)
        snapshot.check_result(sent.result, snapshot.find_result_schema(approval))
        result = sent.result
    elif sent.result is not snapshot.ABSENT and sent.result is not None:
        raise InvalidInput("result", not_allowed)
    return Decision(verdict=verdict, by=actor.person, reason=reason, result=result, edit=edit)


def _edit(approval: Approval, verdict: Verdict, sent: _SentDecision, actor: Actor) -> Edit | None:
    has_arguments = sent.arguments is not snapshot.ABSENT and sent.arguments is not None
    if verdict is not Verdict.EDIT:
        if has_arguments:
            raise InvalidInput("arguments", "are only for an approval with changes")
        if sent.preview is not None:
            raise InvalidInput("preview", "is only for an approval with changes")
        return None
    if sent.preview is not None:
        if has_arguments:
            raise InvalidInput("arguments", "are those of the preview: leave them out")
        return check_previewed(approval, sent.preview, actor.person)
    if sent.arguments is snapshot.ABSENT:
        raise InvalidInput("arguments", "are required to edit")
    edit = check_edit(approval, sent.arguments)
    if _has_preview(approval):
        raise InvalidInput(
            "preview",
            "is required: the tool says what a call would change, so preview these arguments first",
        )
    return edit


def _reopen(approval: Approval, actor: Actor) -> None:
    verdict = approval.status
    approval.status = Approval.Status.PENDING
    approval.decided_by = approval.decided_at = approval.reason = None
    commit.clear_decision(approval)
    votes.take_back(approval, actor)
    review_times.record_undo(approval.id, actor)
    ApprovalClaim.objects.filter(approval=approval).delete()  # it ended with the decision
    approval.save()
    audit.append_about(approval, actor=actor, act=audit.UNDONE, was=verdict)


def _has_preview(approval: Approval) -> bool:
    return approval.preview is not None and is_previewed(json.loads(approval.preview))


def check_edit(approval: Approval, new_args: object) -> Edit:
    """Return the edit of the requested call. Raises InvalidInput naming `arguments` or a place in it.

    A person who denied a call has the last word in its run: no edit makes it after all.
    """
    edited = edit(
        tool=approval.tool,
        schema=json.loads(snapshot.read_schema_text(approval.schema)),
        path=tuple(approval.path),
        effect=EffectClass(approval.effect),
        args=json.loads(approval.args),
        new_args=new_args,
    )
    denied = Approval.objects.filter(
        OF_CALL,
        run_id=approval.run_id,
        tool=approval.tool,
        status=Approval.Status.DENIED,
        action_digest=edited.digest,
    )
    if denied.exists():
        raise InvalidInput(
            FIELD, "are those of a call that a person denied in this run: it stays denied"
        )
    return edited


def find_edit_preview(approval: Approval, preview: object, by: str) -> EditPreviewRow | None:
    """Return the preview of an edit that this person asked for last, None if it has another id."""
    try:
        return jobs.find_preview(gate=approval.gate, by=by, preview=UUID(str(preview)))
    except ValueError:
        return None


def check_previewed(approval: Approval, preview: object, by: str) -> Edit:
    """Return the edit with the arguments and the result of a preview.

    Raises InvalidInput naming `preview`, `arguments` or a place in it; TamperedWith.
    """
    row = find_edit_preview(approval, preview, by)
    if row is None:
        raise InvalidInput("preview", "is not your last one of this call: preview the edit again")
    if row.ended_at is None:
        raise InvalidInput("preview", "has no result yet")
    if row.problem:
        raise InvalidInput("preview", f"has no result: {row.problem}")
    try:
        result = row.preview()
    except (Tampered, KeyMissing) as exc:
        raise TamperedWith(str(exc)) from exc
    if result.refused:
        raise InvalidInput(FIELD, f"are refused by the tool: {result.refused}")
    return replace(
        check_edit(approval, sealing.open_args_for_reviewers(approval.tool, row.arguments)),
        preview=result,
    )
