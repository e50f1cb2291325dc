"""Records a reviewer's decision. No other code may record a person's decision, except `in_doubt` for calls in doubt.

The order of checks is part of the contract. A caller who may not read a request learns nothing about it. One who may
not decide learns nothing about races or digests.
"""

import json
from dataclasses import dataclass, replace
from uuid import UUID

from approvals.decisions import budget_grants, checks, closing, commit, edits, refusals, votes
from approvals.models import Approval
from approvals.queries import requests
from approvals.queries.requests import ApprovalView
from approvals.requests import results
from approvals.rights import principals
from approvals.signed import audit
from runtime.control import jobs
from runtime.control.edit import is_previewed
from runtime.core.values.enums import Decision, Edit, GateKind, Verdict
from runtime.errors import GateNotOpen, InvalidInput
from runtime.ports.access import Actor
from runtime.store.tables.jobs import EditPreviewRow


@dataclass(frozen=True, slots=True, kw_only=True)
class _SentDecision:
    """The values of a decision as the client sent them."""

    verdict: object
    digest: object
    reason: object
    grant: object
    result: object
    confirm: object
    arguments: object
    preview: object
    batch: bool


def decide(
    *,
    approval_id: UUID,
    verdict: object,
    digest: object,
    reason: object,
    actor: Actor,
    grant: object = None,
    result: object = results.ABSENT,
    confirm: object = None,
    arguments: object = results.ABSENT,
    preview: object = None,
    batch: bool = False,
) -> ApprovalView:
    """Approve, deny, answer, edit or request changes to a call, answer a question, or `continue` or `stop` a frame.

    The values may be of any type. `grant` is how much a limit gate adds to its limits, as in `{"turns": 10}`; null
    removes a limit. `result` is the result that an `answer` gives instead of the call: a JSON value that fits the
    tool's result schema. `arguments` are all the arguments of an `edit`, which approves the call with these instead of
    the proposed ones. If the request has a preview, an edit names the `preview` of its arguments instead, from
    `ask_preview`: the call starts only if it would still do what that says. `confirm` repeats the request's own
    `confirm`, which an approval at high risk must do; an edit repeats the value that its arguments have in that place.
    `batch` says that it was decided together with others, for the history.

    Where the policy demands several people, an approval is a vote, and the one that completes them decides. A denial
    by one person decides, and so does a request for changes, `request_changes`: the call is denied, and the agent is
    asked to propose it again with the changes that `reason` names. Revision MAX_REVISIONS of a call is the last one.

    Raises, in this order: NotFound; Forbidden (`scope`, `requester`, `origin`, `not_eligible`, `given_by_origin`,
    `cooling_off`); AlreadyDecided with the winner, Cancelled or Expired; TamperedWith; DigestMismatch; NotShown;
    InvalidInput naming `digest`, `verdict`, `arguments` or a path in it, `preview`, `confirm`, `reason`, `grant` or
    `result`; AlreadyVoted; Forbidden (`not_eligible`) for a later stage. Nothing is written when it raises, except that
    Expired and refusals are recorded, and that votes which no longer count are deleted.
    """
    answer = _SentDecision(
        verdict=verdict,
        digest=digest,
        reason=reason,
        grant=grant,
        result=result,
        confirm=confirm,
        arguments=arguments,
        preview=preview,
        batch=batch,
    )
    try:
        return checks.decided(_settle(approval_id, answer, actor))
    except refusals.RECORDED as exc:
        refusals.record(actor, exc, pk=approval_id)
        raise


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
    checks.verdict(Verdict.EDIT, "verdict", GateKind.APPROVAL, approval)
    edit = edits.check(approval, arguments)
    if not _has_preview(approval):
        return None
    return jobs.preview_edit(
        run=approval.run_id, gate=approval.gate, by=actor.person, args=edit.args
    )


def find_preview(*, approval_id: UUID, preview: object, actor: Actor) -> EditPreviewRow | None:
    """Return the preview of an edit that this person asked for last, None if it has another id. Raises NotFound."""
    approval = requests.readable(approval_id, principals.principal_of(actor))
    return edits.find_preview(approval, preview, actor.person)


def _settle(approval_id: UUID, answer: _SentDecision, actor: Actor) -> checks.Outcome:
    try:
        return _attempt(approval_id, answer, actor)
    except GateNotOpen:  # another action on the run came in between
        with commit.last_attempt():
            audit.lock_run_of(approval_id)
            return _attempt(approval_id, answer, actor)


def _attempt(approval_id: UUID, answer: _SentDecision, actor: Actor) -> checks.Outcome:
    """Check and write. Raises GateNotOpen, with nothing written, if another action on the run came in between."""
    loaded = checks.open_request(commit.load(approval_id, actor))
    loaded = replace(loaded, batch=answer.batch)
    approval = loaded.approval
    decision = None if closing.is_expired(approval, loaded.at) else _decision(loaded, answer, actor)
    return checks.close(loaded, decision, actor)


def _decision(loaded: commit.LoadedApproval, answer: _SentDecision, actor: Actor) -> Decision:
    """Validate the values. Raises DigestMismatch, NotShown, InvalidInput."""
    approval = loaded.approval
    checks.check_digest(approval, answer.digest)
    kind = GateKind.APPROVAL if approval.kind == GateKind.IN_DOUBT else GateKind(approval.kind)
    verdict = checks.verdict(answer.verdict, "verdict", kind, approval)
    checks.check_shown(loaded, verdict)
    edit = _edit(approval, verdict, answer, actor)
    checks.check_confirmed(approval, verdict, answer.confirm, edit)
    checks.check_revisable(approval, verdict)
    votes.check_answer(approval, verdict)
    return Decision(
        verdict=verdict,
        by=actor.person,
        reason=checks.reason(answer.reason, verdict, approval),
        result=_result(approval, verdict, answer),
        edit=edit,
    )


def _edit(approval: Approval, verdict: Verdict, answer: _SentDecision, actor: Actor) -> Edit | None:
    has_arguments = answer.arguments is not results.ABSENT and answer.arguments is not None
    if verdict is not Verdict.EDIT:
        if has_arguments:
            raise InvalidInput("arguments", "are only for an approval with changes")
        if answer.preview is not None:
            raise InvalidInput("preview", "is only for an approval with changes")
        return None
    if answer.preview is not None:
        if has_arguments:
            raise InvalidInput("arguments", "are those of the preview: leave them out")
        return edits.check_previewed(approval, answer.preview, actor.person)
    if answer.arguments is results.ABSENT:
        raise InvalidInput("arguments", "are required to edit")
    edit = edits.check(approval, answer.arguments)
    if _has_preview(approval):
        raise InvalidInput(
            "preview",
            "is required: the tool says what a call would change, so preview these arguments first",
        )
    return edit


def _has_preview(approval: Approval) -> bool:
    return approval.preview is not None and is_previewed(json.loads(approval.preview))


def _result(approval: Approval, verdict: Verdict, answer: _SentDecision) -> object:
    """Return the grant of a limit gate or the result of an answer, None if there is neither. Raises InvalidInput."""
    grant = budget_grants.check(approval, verdict, answer.grant)
    if verdict is not Verdict.ANSWER:
        if answer.result is not results.ABSENT and answer.result is not None:
            raise InvalidInput("result", "is only for an answer instead of the call")
        return grant
    if answer.result is results.ABSENT:
        raise InvalidInput("result", "is required to answer")
    results.check(answer.result, results.schema_of(approval))
    return answer.result
