"""Says whether an allowance passes a call, and verifies that one did. Workers call this between two steps.

The use is written by the step that passes the call. Its number is unique among the acts on the allowance. So of two
steps that take the same use, or of a use and a revocation, one is not written, and its worker looks again.
"""

import logging
import threading
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from approvals.errors import AllowanceBroken
from approvals.governance import allowances, policies
from approvals.models import Approval
from approvals.reads import usual
from approvals.requests import snapshot, verification
from approvals.rights import approval_rights, principals
from approvals.rules import allowance_terms as coverage
from approvals.rules.policy import Demands
from approvals.rules.unusual_values import find_unusual_values
from approvals.signed import rows
from runtime.core.run.continuation import merge_people
from runtime.core.run.events import AllowanceUse
from runtime.core.values.enums import Risk
from runtime.keyring import sealing
from runtime.ports import approvals
from runtime.ports.access import Actor
from runtime.store import pool

log = logging.getLogger(__name__)

# Until a process notices the first allowance of a tool; a revocation counts at once.
RECENT_SECONDS = 1.0

_CALL_STATE = """
    SELECT clock_timestamp(), coalesce((SELECT origin FROM runtime_run WHERE id = %(run)s), '[]'::jsonb),
        EXISTS (SELECT FROM approvals_allowanceact WHERE act = 'used'
            AND run = %(run)s AND frame = %(frame)s AND call = %(call)s)
"""
_RIGHTS = f"SELECT {principals.build_credentials_sql('%(first)s')}, {principals.build_credentials_sql('%(second)s')}"
_USE = """
    SELECT clock_timestamp(), EXISTS (SELECT FROM approvals_allowanceact WHERE act = 'used'
        AND allowance = %(allowance)s AND seq = %(seq)s AND approval = %(approval)s AND run = %(run)s
        AND frame = %(frame)s AND call = %(call)s)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Live:
    checked: float  # monotonic
    tools: frozenset[str]


_lock = threading.Lock()
_live = _Live(checked=float("-inf"), tools=frozenset())


def allow(call: approvals.ReviewSnapshot, uses: Mapping[UUID, int]) -> approvals.Allowed | None:
    """Return the allowance that passes this call, None if a person must be asked.

    `uses` counts the uses of each allowance that the step takes already.
    """
    if not call.kind.is_approval or not _is_plain(call.preview):
        return None
    with pool.join_transaction() as connection:
        candidates = _read_tool_allowances(connection, call.tool)
        if not candidates:
            return None
        row = pool.fetch_row(
            connection, _CALL_STATE, {"run": call.run, "frame": call.frame, "call": call.call}
        )
        assert row is not None  # a SELECT without FROM has one row
        at, origin, used = rows.to_utc(row[0]), rows.select_texts(row[1]), row[2]
    if used:
        return None
    # The policy is read on a connection of its own.
    version, judged = policies.judge(policies.build_facts(call, call.args, call.risk))
    if not _is_met(judged.demands):
        return None
    terms = snapshot.Judged(version=version, risk=str(judged.risk), demands=judged.demands)
    approval = snapshot.build_request(call, at, merge_people(call.origin, origin), terms)
    action, args = verification.build_action(approval), sealing.redact_args(call.tool, call.args)
    with pool.join_transaction() as connection:
        for allowance in candidates:
            calls_left = allowance.left - uses.get(allowance.id, 0)
            if allowance.state(at) != "in force" or calls_left <= 0:
                continue
            if coverage.not_covered(allowance.terms, action, args) is not None:
                continue
            if _find_makers_denial(connection, allowance, approval, at, call.origin) is None:
                history = usual.read_history_for_worker(connection, call.tool)
                odd = usual.without_dropped(find_unusual_values(args, history), call.schema)
                return None if odd else _make_allowed(allowance, uses)
    return None


def verify(
    approval: Approval, origin: Collection[str], risk: Risk | None = None
) -> approvals.VerifiedApproval:
    """Verify the use by which a call was passed, just before the call starts. `risk` is that of the call now.

    Raises ApprovalVoid if the allowance does not count any more, NotConfirmed if it was forged, KeyMissing.
    """
    snapshot.check_digests(approval)
    snapshot.check_seal(approval)
    verification.check_allowed(approval)
    risk = Risk(approval.risk) if risk is None else risk
    facts = policies.build_facts(approval, verification.decode_arguments(approval), risk)
    _, judged = policies.judge(facts)
    with pool.join_transaction() as connection:
        allowance = _read_request_allowance(connection, approval)
        at = _check_use(connection, approval)
        state = allowance.state(at)
        if state in ("revoked", "ended"):
            raise approvals.ApprovalVoid(
                f"the allowance of {' and '.join(allowance.makers)} is {state}"
            )
        if not _is_met(judged.demands) or judged.risk != approval.risk:
            raise approvals.ApprovalVoid("the policy demands more than an allowance gives")
        denial = _find_makers_denial(connection, allowance, approval, at, origin)
        if denial is not None:
            raise approvals.ApprovalVoid(denial)
    return approvals.VerifiedApproval(by=allowance.makers)


def find_use_fault(gate: UUID, use: AllowanceUse) -> str | None:
    """Say why a stored use does not verify; None if it does. Raises KeyMissing."""
    approval = Approval.objects.filter(gate=gate).first()
    if approval is None or (approval.allowance, approval.allowance_use) != (use.id, use.number):
        return "its request is missing, or names another use"
    problem = verification.find_fault(approval)
    if problem is not None:
        return problem
    try:
        with pool.join_transaction() as connection:
            allowance = _read_request_allowance(connection, approval)
            _check_use(connection, approval)
    except approvals.NotConfirmed as exc:
        return str(exc)
    return None if allowance.makers == use.by else "other people made the allowance"


def forget() -> None:
    """Ask the database at the next use which tools have allowances."""
    global _live
    _live = _Live(checked=float("-inf"), tools=frozenset())


def _read_tool_allowances(
    connection: pool.Connection, tool: str
) -> tuple[allowances.Allowance, ...]:
    """Return the allowances of the tool; none if an act on one of them does not verify."""
    global _live
    with _lock:
        if time.monotonic() - _live.checked >= RECENT_SECONDS:
            _live = _Live(checked=time.monotonic(), tools=allowances.read_live_tools(connection))
        if tool not in _live.tools:
            return ()
    try:
        return allowances.read_tool_allowances(connection, tool)
    except AllowanceBroken as exc:
        log.error("No allowance of %s counts: %s", tool, exc)
        return ()


def _is_plain(preview: dict[str, Any] | None) -> bool:
    """Tell whether the worker found nothing about the call that a person must see: a warning, or no preview in time."""
    if preview is None:
        return True
    findings = preview.keys() - {"plan"}
    if not findings:
        return True
    document = preview.get("shown")
    return findings == {"shown"} and isinstance(document, dict) and not document.get("warnings")


def _is_met(demands: Demands | None) -> bool:
    """Tell whether one person may decide with nothing else. Who that may be, `_find_makers_denial` says."""
    if demands is None:
        return True
    asks_more = demands.reason or demands.failed or demands.step_up
    return demands.quorum == 1 and not asks_more


def _find_makers_denial(
    connection: pool.Connection,
    allowance: allowances.Allowance,
    approval: Approval,
    at: datetime,
    origin: Iterable[str],
) -> str | None:
    """Say why one of the two people may not decide this call for themselves; None if both may."""
    first, second = allowance.makers
    row = pool.fetch_row(connection, _RIGHTS, {"first": first, "second": second})
    assert row is not None  # a SELECT without FROM has one row
    for person, rights in zip(allowance.makers, row, strict=True):
        principal = principals.restore_principal(Actor(person=person), rights, at)
        denial = approval_rights.find_denial_for(principal, approval, None, tuple(origin), at)
        if denial is not None:
            return f"{person} made the allowance, but may not decide this call: {denial.detail}"
    return None


def _make_allowed(allowance: allowances.Allowance, uses: Mapping[UUID, int]) -> approvals.Allowed:
    assert allowance.proof is not None  # it is in force
    use = AllowanceUse(
        id=allowance.id,
        number=allowance.used + uses.get(allowance.id, 0) + 1,
        of=allowance.terms.count,
        by=allowance.makers,
    )
    return approvals.Allowed(use=use, proof=allowance.proof)


def _read_request_allowance(
    connection: pool.Connection, approval: Approval
) -> allowances.Allowance:
    """Read the allowance that a request names. Raises NotConfirmed."""
    assert approval.allowance is not None
    try:
        allowance = allowances.read_allowance(approval.allowance, connection)
    except AllowanceBroken as exc:
        raise approvals.NotConfirmed(str(exc)) from exc
    if allowance is None or allowance.confirmed_by is None:
        raise approvals.NotConfirmed("there is no such allowance")
    return allowance


def _check_use(connection: pool.Connection, approval: Approval) -> datetime:
    """Raise NotConfirmed unless the use of this request is stored. Return the time of the database."""
    row = pool.fetch_row(
        connection,
        _USE,
        {
            "allowance": approval.allowance,
            "seq": (approval.allowance_use or 0) + allowances.FIRST_USE - 1,
            "approval": approval.id,
            "run": approval.run_id,
            "frame": approval.frame,
            "call": approval.call,
        },
    )
    assert row is not None  # a SELECT without FROM has one row
    if not row[1]:
        raise approvals.NotConfirmed("the use of the allowance is not stored")
    return rows.to_utc(row[0])
