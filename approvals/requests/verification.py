"""Verifies a stored request and its decision, whenever it is shown and before it is decided.

Otherwise a program with write access to the database could change a request while a reviewer reads it, and restore it
before the click.

Makes the decision of the clock: the consequence that a request's demands name for its expiry.

It follows from the stored request alone, which its digest and MAC cover. So a worker makes it again and compares.
"""

import json
from datetime import UTC
from typing import Any

from approvals.models import Approval
from approvals.requests import snapshot
from approvals.rules import allowance_terms as coverage
from approvals.rules.allowance_terms import Action
from approvals.rules.policy import Demands, OnExpiry
from approvals.signed import rows, statements, votes
from runtime.core.values.enums import Decision, Verdict
from runtime.core.values.json_values import hash_value
from runtime.core.values.verdicts import VERDICTS
from runtime.errors import InvalidInput, KeyMissing
from runtime.keyring import purposes, sealing, signatures
from runtime.keyring.signatures import Verifies
from runtime.ports.approvals import NotConfirmed

_ERASED_ARGS = "{}"
SIGNED = (Approval.Status.APPROVED, Approval.Status.DENIED, Approval.Status.ANSWERED)


def find_fault(approval: Approval) -> str | None:
    """Name the first value of this row that does not verify; None if all do.

    Costs a few hashes, and a query for a schema that this process has not read yet.
    """
    try:
        if not is_erased(approval):
            snapshot.check_digests(approval)
            snapshot.read_schema_text(approval.schema)
            snapshot.read_schema_text(approval.result_schema or "")
        snapshot.check_seal(approval)
        # Lists are filtered by `excluded`, which the seal does not cover.
        missing = {*rows.select_texts(approval.origin)}
        missing -= {*rows.select_texts(approval.excluded)}
        if missing:
            raise NotConfirmed(
                f"{', '.join(sorted(missing))} could decide, although the run's origin includes them"
            )
        if approval.allowance is not None:
            check_allowed(approval)
        if approval.allowance is None and approval.status in SIGNED:
            check_edited(approval, statements.read(approval))
        elif approval.edited is not None or approval.edited_preview is not None:
            raise NotConfirmed("the request has an edit that no person decided")
    except (NotConfirmed, KeyMissing) as exc:
        return str(exc)
    except (ValueError, TypeError) as exc:  # a column holds a value of another type
        return str(exc)
    return None


def check_edited(approval: Approval, statement: statements.Statement) -> None:
    """Raise NotConfirmed unless stored arguments and preview of an approval with changes are the signed ones."""
    if (approval.edited is not None) is not (VERDICTS[statement.verdict].carries == "edit"):
        raise NotConfirmed("the stored verdict differs from the signed one")
    if is_erased(approval):
        return
    if approval.edited is not None:
        snapshot.check_edit(approval, json.loads(approval.edited), statement.result)
    preview = approval.edited_preview
    if statement.consequences != (None if preview is None else hash_value(json.loads(preview))):
        raise NotConfirmed("the stored preview of the edited call differs from the signed one")


def check_allowed(approval: Approval, verifies: Verifies = signatures.verify_signature) -> None:
    """Raise NotConfirmed unless two people signed the allowance that the request names, and it covers the call."""
    if None in (approval.statement, approval.signature, approval.key_id):
        raise NotConfirmed("the request has no signed allowance")
    signature = signatures.Signature(hex=str(approval.signature), key_id=str(approval.key_id))
    text = str(approval.statement)
    if not verifies(purposes.RIGHTS, signature, text):
        raise NotConfirmed("the allowance differs from the signed one")
    act: dict[str, Any] = json.loads(text)
    stored = ("allowance", "confirmed", str(approval.allowance), approval.decided_by, "approved")
    signed = (*(act.get(name) for name in ("kind", "act", "allowance", "by")), approval.status)
    if signed != stored:
        raise NotConfirmed("the signed act confirms no allowance of this request")
    terms = coverage.read(act["terms"])
    if approval.decided_at is None or approval.decided_at >= terms.ends_at:
        raise NotConfirmed("the allowance had ended")
    if not 0 < (approval.allowance_use or 0) <= terms.count:
        raise NotConfirmed("the allowance was used up")
    if not is_erased(approval):
        args = sealing.redact_args(approval.tool, decode_arguments(approval))
        other = coverage.not_covered(terms, build_action(approval), args)
        if other is not None:
            raise NotConfirmed(f"the allowance does not cover the call: {other}")


def build_action(approval: Approval) -> Action:
    """Return what an allowance of the call of this request is bound to."""
    return Action(
        tool=approval.tool,
        path=tuple(approval.path),
        schema=approval.schema,
        effect=approval.effect,
        risk=approval.risk,
    )


def decode_arguments(approval: Approval) -> Any:
    """Return the arguments of the stored call. Raises ValueError."""
    return json.loads(approval.args)


def is_erased(approval: Approval) -> bool:
    """Tell whether retention removed the arguments, which it never does while the request is pending."""
    return (
        approval.removed_at is not None
        and approval.status != Approval.Status.PENDING
        and approval.args == _ERASED_ARGS
    )


def build_expiry_decision(approval: Approval) -> Decision:
    """Return the decision if no person decided in time. Demands that cannot be read deny the call."""
    assert approval.expires_at is not None
    due = approval.expires_at.astimezone(UTC)
    reason = f"No decision before {due:%Y-%m-%d %H:%M:%S} UTC."
    demands = _find_demands(approval)
    if demands is None or demands.on_expiry is OnExpiry.DENY:
        return Decision(verdict=Verdict.EXPIRE, by="", reason=reason)
    rule = f"{reason} The policy's rule {demands.rule}"
    if demands.on_expiry is OnExpiry.FAIL:
        return Decision(verdict=Verdict.EXPIRE, by="", reason=f"{rule} ends the run.")
    unfit = explain_expiry_misfit(approval)
    if unfit:
        return Decision(
            verdict=Verdict.EXPIRE,
            by="",
            reason=f"{rule} has an answer that the tool could not return: {unfit}.",
        )
    return Decision(
        verdict=Verdict.ANSWER, by="", reason=f"{rule} gave this answer.", result=demands.answer
    )


def must_fail_run(approval: Approval) -> bool:
    """Tell whether the run fails if the request expires."""
    demands = _find_demands(approval)
    return demands is not None and demands.on_expiry is OnExpiry.FAIL


def explain_expiry_misfit(approval: Approval) -> str:
    """Say why the tool could not return the answer of the policy; empty if it could, or if there is no answer."""
    demands = _find_demands(approval)
    if demands is None or demands.on_expiry is not OnExpiry.ANSWER:
        return ""
    try:
        snapshot.check_result(demands.answer, snapshot.find_result_schema(approval))
    except InvalidInput as exc:
        return f"{exc.field} {exc.detail}"
    except NotConfirmed as exc:
        return str(exc)
    return ""


def _find_demands(approval: Approval) -> Demands | None:
    """Read the demands; None also for those that cannot be read: a worker then finds that the request was changed."""
    try:
        return votes.read_demands(approval)
    except NotConfirmed:
        return None
