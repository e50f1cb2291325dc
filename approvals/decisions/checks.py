"""Checks a decision and its values, for `decide`, `in_doubt` and `undo`.

Lock order: run, gate, request, signal, audit.

A person's grant at a limit gate says how much more of each exhausted limit the run may use.
"""

import hmac
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction

from approvals import errors
from approvals.decisions import commit, votes
from approvals.models import Approval, AuditEntry
from approvals.reads import approval_views
from approvals.reads.approval_views import ApprovalView
from approvals.requests import confirmation, verification
from approvals.rights import approval_rights
from approvals.rights.principals import Principal, Scope
from approvals.rules import policy
from approvals.rules.policy import Demands
from approvals.signed import audit
from runtime.control.user_actions import validate_text
from runtime.core.run.continuation import MAX_REVISIONS
from runtime.core.values.budgets import (
    NAMES,
    InvalidBudget,
    name_unit,
    read_form_budget,
    read_granted,
)
from runtime.core.values.enums import Decision, Edit, GateKind, Verdict
from runtime.core.values.limits import MAX_REASON
from runtime.core.values.verdicts import STARTS_CALL, STARTS_CALL_UNCHANGED, VERDICTS, VERDICTS_AT
from runtime.errors import Forbidden, GateNotOpen, InvalidInput, RequestError
from runtime.ports.access import Actor

# The decided request; or an error with which something is committed: the expiry, or the deletion of void votes.
Outcome = approval_views.ApprovalView | errors.Expired | errors.AlreadyVoted | Forbidden
GRANT_FIELD = "grant"
UNLIMITED = "unlimited"


def open_request(
    loaded: commit.LoadedApproval | None, *, admins: bool = False
) -> commit.LoadedApproval:
    """Return the request if it can be decided. With `admins` they need no right to decide it.

    Raises, in this order: NotFound; Forbidden; AlreadyDecided, AlreadyCancelled or Expired; TamperedWith.
    """
    if loaded is None or not approval_rights.may_read_request(loaded.principal, loaded.approval):
        raise errors.NotFound
    if not (admins and loaded.principal is not None and loaded.principal.has(Scope.ADMIN)):
        check_right(loaded.approval, loaded.principal, loaded.at)
    check_open(loaded.approval)
    fault = verification.find_fault(loaded.approval)
    if fault is not None:
        raise errors.TamperedWith(fault)  # no decision about it is signed
    return loaded


def read_kind(approval_id: UUID) -> str:
    """Return the kind of a request, for a caller that checks the rights next. Raises NotFound."""
    kind = Approval.objects.filter(pk=approval_id).values_list("kind", flat=True).first()
    if kind is None:
        raise errors.NotFound
    return kind


def close(loaded: commit.LoadedApproval, decision: Decision | None, actor: Actor) -> Outcome:
    """Write the decision, or the expiry if there is none. Raises AlreadyDecided, GateNotOpen, Forbidden."""
    approval = loaded.approval
    if not loaded.is_open:
        raise errors.AlreadyDecided(None)
    if decision is None:
        return _expire(loaded)
    demands = loaded.demands
    if demands is not None:
        votes.check_step_up(demands, actor, loaded.at)
    seconds = None if demands is None else demands.undo
    if approval.is_of_call and approval.risk not in policy.UNDOABLE:
        seconds = 0.0  # to approve a high-risk call has a second step instead
    elif seconds is None:
        seconds = float(settings.SIGNOFF_UNDO_SECONDS)
    effective_at = loaded.at + timedelta(seconds=seconds) if seconds else None
    is_late = effective_at and approval.expires_at and effective_at > approval.expires_at
    if is_late and approval.is_external:
        effective_at = approval.expires_at  # its instance is told nothing after the deadline
    if demands is not None and decision.verdict in STARTS_CALL_UNCHANGED:
        refused = votes.vote(loaded, decision, actor, effective_at)
        if refused is not None:
            return refused
    else:
        approval.effective_at = effective_at
        approval.decided_for = approval_rights.find_absentee(loaded.principal, approval, loaded.at)
        commit.close(loaded, decision, actor)
    return approval_views.ApprovalView(stored=approval, reader=loaded.principal)


def unwrap_outcome(outcome: Outcome) -> approval_views.ApprovalView:
    """Return the decided request; raise the error, after the writes are committed."""
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def check_right(
    approval: Approval, principal: Principal | None, at: datetime | None = None
) -> None:
    """Raise Forbidden, and log it, unless the principal may decide the request at this time, by default now."""
    denial = approval_rights.find_denial(principal, approval, at=at)
    if denial is not None:
        audit.log_refusal(
            principal.person if principal else None, f"request {approval.id}", denial.code
        )
        raise denial


def check_open(approval: Approval) -> None:
    """Raise AlreadyCancelled, Expired or AlreadyDecided unless the request is pending."""
    if approval.status == Approval.Status.CANCELLED:
        raise errors.AlreadyCancelled(approval.decided_by)
    if approval.status == Approval.Status.EXPIRED and approval.expires_at is not None:
        raise errors.Expired(approval.expires_at)
    if approval.status != Approval.Status.PENDING:
        raise errors.AlreadyDecided(approval.decided_by)


def check_digest(approval: Approval, digest: object) -> None:
    """Raise DigestMismatch, or InvalidInput if it is not text."""
    if not isinstance(digest, str):
        raise InvalidInput("digest", "must be the digest of the request you saw")
    sent = digest.encode("utf-8", "surrogatepass")
    if not hmac.compare_digest(sent, approval.approval_digest.encode("utf-8", "surrogatepass")):
        raise errors.DigestMismatch


def check_shown(loaded: commit.LoadedApproval, verdict: Verdict) -> None:
    """Raise NotShown before a call starts whose run has entries that no page can show."""
    if verdict in STARTS_CALL and loaded.unreadable:
        raise errors.NotShown(describe_unreadable(loaded.unreadable))


def describe_unreadable(unreadable: Sequence[int]) -> str:
    """Say which entries of the run's journal cannot be shown, for the reviewer; empty if there are none."""
    if not unreadable:
        return ""
    entries = ", ".join(map(str, unreadable))
    return (
        f"Part of the run's journal cannot be read (entry {entries}), so no page shows everything that led to this"
        " call. It can be denied or given up, and an admin can look at the run."
    )


def check_confirmed(
    approval: Approval, verdict: Verdict, confirmation_text: object, edited: Edit | None
) -> None:
    """Raise InvalidInput unless a person who starts a call at high risk repeats the name of its object."""
    if confirmation_text is not None and not isinstance(confirmation_text, str):
        raise InvalidInput("confirm", "must be text")
    if verdict not in STARTS_CALL:
        return
    name = confirmation.find_required_name(approval, None if edited is None else edited.args)
    if name is None or confirmation.is_same_name(confirmation_text or "", name):
        return
    if edited is None:
        raise InvalidInput("confirm", "must repeat the request's `confirm` to start a high risk")
    raise InvalidInput("confirm", f"must repeat {json.dumps(name)}, the object of the changed call")


def check_verdict(value: object, field: str, kind: GateKind, approval: Approval) -> Verdict:
    """Return the verdict, which must be one for requests of this kind. Raises InvalidInput naming `field`."""
    if approval.kind != kind:
        door = "settled at its gate" if approval.is_in_doubt else "decided as it is"
        raise InvalidInput(field, f"is not for this request, which is {door}")
    possible = VERDICTS_AT[kind]
    if value not in possible:
        raise InvalidInput(field, f"must be one of {', '.join(possible)}")
    verdict = possible[possible.index(value)]
    rule = VERDICTS[verdict]
    if approval.is_external and (rule.starts_call if rule.resolves_doubt else rule.carries):
        raise InvalidInput(
            field, f"cannot be {verdict}: an agent outside makes the call once, as it asked"
        )
    return verdict


def check_revisable(approval: Approval, verdict: Verdict) -> None:
    """Raise InvalidInput for a request for changes to the last revision of a call."""
    if VERDICTS[verdict].asks_again and approval.revision >= MAX_REVISIONS:
        raise InvalidInput(
            "verdict", f"cannot be {verdict}: revision {MAX_REVISIONS} of a call is its last one"
        )


def check_answer(demands: Demands | None, verdict: Verdict) -> None:
    """Raise InvalidInput for an answer where several people must agree: an answer is one person's value."""
    if VERDICTS[verdict].replaces_call and demands is not None and demands.quorum > 1:
        raise InvalidInput(
            "verdict", f"cannot be answer, because {demands.quorum} people must agree"
        )


def check_reason(text: object, verdict: Verdict, demands: Demands | None = None) -> str:
    """Return the reason unchanged, as model and audit get it. Raises InvalidInput."""
    rule = VERDICTS[verdict]
    needed = f"is required to {rule.verb}" if rule.needs_reason else ""
    if demands is not None and demands.reason and verdict in STARTS_CALL_UNCHANGED:
        needed = "is required by the policy"
    return validate_text("reason", "" if text is None else text, MAX_REASON, required=needed)


def _expire(loaded: commit.LoadedApproval) -> errors.Expired:
    """Record the expiry before the decision is refused. Raises GateNotOpen, also if the deadline was just extended."""
    approval = loaded.approval
    assert approval.expires_at is not None  # it has expired
    with transaction.atomic():
        audit.lock_runs(approval.run_id)
        if audit.read_chain_end(approval.run_id) != loaded.last:
            raise GateNotOpen
        commit.expire(approval, loaded.at)
    return errors.Expired(approval.expires_at)


REFUSED = "refused: "  # before the code of the error
MAX_REFUSALS = 50

RECORDED = (errors.NotFound, Forbidden, errors.TamperedWith, errors.DigestMismatch)


@contextmanager
def audit_refusals(actor: Actor, **request: UUID) -> Iterator[None]:
    """Record the refusal with which the block ends. `request` finds the row, by `pk` or by `run` and `gate`."""
    try:
        yield
    except RECORDED as exc:
        record_refusal(actor, exc, **request)
        raise


def record_refusal(actor: Actor, problem: RequestError, **request: UUID) -> None:
    """Record that the actor was refused, unless it is recorded already or there is no such request."""
    approval = Approval.objects.filter(**request).only("run_id", "approval_digest").first()
    if approval is None or not isinstance(problem, RECORDED):
        return
    act = f"{REFUSED}{problem.code}"
    if _is_enough(
        approval, actor, act
    ):  # without the lock, which a person without rights must not take at will
        return
    with transaction.atomic():
        audit.lock_runs(approval.run_id)
        if not _is_enough(approval, actor, act):
            audit.append_about(approval, actor=actor, act=act)


def _is_enough(approval: Approval, actor: Actor, act: str) -> bool:
    """Tell whether the audit has this refusal of the person, or no room for another one."""
    refusals = AuditEntry.objects.filter(
        run=approval.run_id, subject=audit.name_subject(approval.id), act__startswith=REFUSED
    )
    repeated = refusals.filter(actor=actor.person, act=act)
    return repeated.exists() or refusals.count() >= MAX_REFUSALS


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantField:
    """The field of one limit; several that are of the same kind are raised together."""

    name: str
    unit: str
    raw: str

    @property
    def id(self) -> str:
        """The id of the field on the page."""
        return f"grant-{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """A limit that was reached, with the agent or run it limits, the amount used and the amount allowed, as text."""

    of: str
    unit: str
    used: str
    allowed: str


def read_reached_limits(approval: ApprovalView) -> tuple[Reached, ...]:
    """Return the limits of a limit gate in the engine's order; none at another gate, or if they cannot be read."""
    limits = approval.args.get("limits") if isinstance(approval.args, dict) else None
    if not approval.is_limit or not isinstance(limits, list):
        return ()
    return tuple(
        Reached(
            of=str(limit.get("of", "")),
            unit=name_unit(NAMES[limit["limit"]]),
            used=str(limit.get("used", "")),
            allowed=str(limit.get("allowed", "")),
        )
        for limit in limits
        if isinstance(limit, dict) and limit.get("limit") in list(NAMES)  # it may be unhashable
    )


def check_grant(approval: Approval, verdict: Verdict, grant: object) -> object:
    """Return the grant as it was given, None if there is nothing to grant. Raises InvalidInput naming it."""
    if not approval.is_limit or VERDICTS[verdict].carries != "grant":
        if grant is not None:
            raise InvalidInput(GRANT_FIELD, "is only for a limit that is raised")
        return None
    try:
        reached = {NAMES[name] for name in _list_limit_names(json.loads(approval.args))}
        read_granted({} if grant is None else grant, reached)
    except InvalidBudget as exc:
        raise InvalidInput(
            f"{GRANT_FIELD}.{exc.name}" if exc.name else GRANT_FIELD, exc.detail
        ) from exc
    return grant


def list_grant_fields(approval: ApprovalView, form: Mapping[str, str]) -> tuple[GrantField, ...]:
    """Return a field for each limit that was reached, filled with the form's value or with the same amount again."""
    names = _list_limit_names(approval.args) if approval.is_limit else []
    return tuple(
        GrantField(
            name=name,
            unit=name_unit(NAMES[name]),
            raw=form.get(
                f"{GRANT_FIELD}.{name}", "" if form else _read_allowed_amount(approval.args, name)
            ),
        )
        for name in names
    )


def explain_grant(error: InvalidInput) -> str:
    """Describe the problem of a grant and the values allowed instead."""
    name = error.field.removeprefix(GRANT_FIELD).removeprefix(".")
    if name not in NAMES:
        return f"the grant {error.detail}. Enter a number, or unlimited."
    unit = name_unit(NAMES[name])
    return f"more {unit} {error.detail}. Enter a number of {unit}, or unlimited."


def read_grant(form: Mapping[str, str]) -> dict[str, object]:
    """Read a grant from a submitted form, without validating it."""
    grants = read_form_budget({name: form.get(f"{GRANT_FIELD}.{name}", "") for name in NAMES})
    return {name: None if value == UNLIMITED else value for name, value in grants.items()}


def _read_allowed_amount(args: Any, name: str) -> str:
    """Return the amount allowed until now, as the engine wrote it."""
    limits = (row for row in args["limits"] if isinstance(row, dict))
    amounts = (row.get("allowed") for row in limits if row.get("limit") == name)
    return str(next(amounts, ""))


def _list_limit_names(args: object) -> list[str]:
    """Return the limit names that the engine wrote, covered by the request's MAC. Other values give no names."""
    limits = args.get("limits") if isinstance(args, dict) else None
    names = (
        [row.get("limit") for row in limits if isinstance(row, dict)]
        if isinstance(limits, list)
        else []
    )
    return [name for name in NAMES if name in names]
