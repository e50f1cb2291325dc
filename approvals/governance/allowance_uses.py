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

from approvals import clock
from approvals.errors import AllowanceBroken
from approvals.governance import allowances, policies
from approvals.governance.allowances import FIRST_USE, Allowance
from approvals.models import Approval, approval_rows
from approvals.reads import usual
from approvals.requests import snapshot, verification
from approvals.rights import approvals, principals
from approvals.rules import allowance_terms as coverage
from approvals.rules.judge import Judgement
from approvals.rules.policy import Demands
from approvals.rules.unusual_values import find_unusual_values
from runtime.core.run.continuation import merge_people
from runtime.core.run.events import AllowanceUse
from runtime.core.values.enums import Risk
from runtime.keyring import sealing
from runtime.ports.access import Actor
from runtime.ports.approvals import (
    Allowed,
    ApprovalVoid,
    NotConfirmed,
    ReviewSnapshot,
    VerifiedApproval,
)
from runtime.store import pool
from runtime.store.pool import Connection

log = logging.getLogger(__name__)

RECENT_SECONDS = (
    1.0  # until a process notices the first allowance of a tool; a revocation counts at once
)

_PLACE = """
    SELECT clock_timestamp(), coalesce((SELECT origin FROM runtime_run WHERE id = %(run)s), '[]'::jsonb),
        EXISTS (SELECT FROM approvals_allowanceact WHERE act = 'used'
            AND run = %(run)s AND frame = %(frame)s AND call = %(call)s)
"""
_HELD = (
    f"SELECT {principals.credentials_sql('%(first)s')}, {principals.credentials_sql('%(second)s')}"
)
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


def allow(shown: ReviewSnapshot, taken: Mapping[UUID, int]) -> Allowed | None:
    """Return the allowance that passes this call, None if a person must be asked.

    `taken` counts the uses of each allowance that the step takes already.
    """
    if not shown.kind.is_approval or not _is_plain(shown.preview):
        return None
    with pool.in_transaction() as connection:
        found = _of_tool(connection, shown.tool)
        if not found:
            return None
        at, origin, used = _place(connection, shown)
    if used:
        return None
    # The policy is read on a connection of its own.
    version, judged = policies.judge(policies.facts_of(shown, shown.args, shown.risk))
    if not _is_met(judged.demands):
        return None
    approval = snapshot.row(shown, at, merge_people(shown.origin, origin), _judged(version, judged))
    action, args = verification.action(approval), sealing.redacted_args(shown.tool, shown.args)
    with pool.in_transaction() as connection:
        for one in found:
            left = one.left - taken.get(one.id, 0)
            if one.state(at) != "in force" or left <= 0:
                continue
            if coverage.not_covered(one.terms, action, args) is not None:
                continue
            if _lost(connection, one, approval, at, shown.origin) is None:
                return None if _is_odd(connection, shown, args) else _allowed(one, taken)
    return None


def verify(
    approval: Approval, origin: Collection[str], risk: Risk | None = None
) -> VerifiedApproval:
    """Verify the use by which a call was passed, just before the call starts. `risk` is that of the call now.

    Raises ApprovalVoid if the allowance does not count any more, NotConfirmed if it was forged, KeyMissing.
    """
    snapshot.check_digests(approval)
    snapshot.check_seal(approval)
    verification.check_allowed(approval)
    judged = _judged_again(approval, Risk(approval.risk) if risk is None else risk)
    with pool.in_transaction() as connection:
        one = _of_request(connection, approval)
        at = _check_use(connection, approval)
        state = one.state(at)
        if state in ("revoked", "ended"):
            raise ApprovalVoid(f"the allowance of {' and '.join(one.makers)} is {state}")
        if not _is_met(judged.demands) or judged.risk != approval.risk:
            raise ApprovalVoid("the policy demands more than an allowance gives")
        lost = _lost(connection, one, approval, at, origin)
        if lost is not None:
            raise ApprovalVoid(lost)
    return VerifiedApproval(by=one.makers)


def problem_of(gate: UUID, use: AllowanceUse) -> str | None:
    """Say why a stored use does not verify; None if it does. Raises KeyMissing."""
    approval = Approval.objects.filter(gate=gate).first()
    if approval is None or (approval.allowance, approval.allowance_use) != (use.id, use.number):
        return "its request is missing, or names another use"
    wrong = verification.fault(approval)
    if wrong is not None:
        return wrong
    try:
        with pool.in_transaction() as connection:
            one = _of_request(connection, approval)
            _check_use(connection, approval)
    except NotConfirmed as exc:
        return str(exc)
    return None if one.makers == use.by else "other people made the allowance"


def forget() -> None:
    """Ask the database at the next use which tools have allowances."""
    global _live
    _live = _Live(checked=float("-inf"), tools=frozenset())


def _of_tool(connection: Connection, tool: str) -> tuple[Allowance, ...]:
    """Return the allowances of the tool; none if an act on one of them does not verify."""
    if not _is_live(connection, tool):
        return ()
    try:
        return allowances.of_tool(connection, tool)
    except AllowanceBroken as exc:
        log.error("No allowance of %s counts: %s", tool, exc)
        return ()


def _is_live(connection: Connection, tool: str) -> bool:
    """Tell whether the tool has an allowance, by what this process read within the last second."""
    global _live
    with _lock:
        if time.monotonic() - _live.checked >= RECENT_SECONDS:
            _live = _Live(checked=time.monotonic(), tools=allowances.live_tools(connection))
        return tool in _live.tools


def _is_plain(preview: dict[str, Any] | None) -> bool:
    """Tell whether the worker found nothing about the call that a person must see: a warning, or no preview in time."""
    if preview is None:
        return True
    found = preview.keys() - {"plan"}
    if not found:
        return True
    shown = preview.get("shown")
    return found == {"shown"} and isinstance(shown, dict) and not shown.get("warnings")


def _place(connection: Connection, shown: ReviewSnapshot) -> tuple[datetime, list[str], bool]:
    """Return the time, the run's origin by its row, and whether this call was passed before."""
    row = pool.row(connection, _PLACE, {"run": shown.run, "frame": shown.frame, "call": shown.call})
    assert row is not None  # a SELECT without FROM has one row
    return clock.to_utc(row[0]), approval_rows.texts(row[1]), row[2]


def _judged(version: str, judged: Judgement) -> snapshot.Judged:
    return snapshot.Judged(version=version, risk=str(judged.risk), demands=judged.demands)


def _judged_again(approval: Approval, risk: Risk) -> Judgement:
    return policies.judge(policies.facts_of(approval, verification.arguments(approval), risk))[1]


def _is_met(demands: Demands | None) -> bool:
    """Tell whether the policy lets one person decide without a reason. Who that may be, `_lost` says."""
    return demands is None or (demands.quorum == 1 and not demands.reason and not demands.failed)


def _lost(
    connection: Connection, one: Allowance, approval: Approval, at: datetime, origin: Iterable[str]
) -> str | None:
    """Say why one of the two people may not decide this call for themselves; None if both may."""
    first, second = one.makers
    held = pool.row(connection, _HELD, {"first": first, "second": second})
    assert held is not None  # a SELECT without FROM has one row
    for person, rights in zip(one.makers, held, strict=True):
        principal = principals.from_rights(Actor(person=person), rights, at)
        denial = approvals.denial_for(principal, approval, None, tuple(origin), at)
        if denial is not None:
            return f"{person} made the allowance, but may not decide this call: {denial.detail}"
    return None


def _is_odd(connection: Connection, shown: ReviewSnapshot, args: Any) -> bool:
    """Tell whether a value of the call is odd beside the approved calls of its tool."""
    history = usual.history_for_worker(connection, shown.tool)
    return bool(usual.without_dropped(find_unusual_values(args, history), shown.schema))


def _allowed(one: Allowance, taken: Mapping[UUID, int]) -> Allowed:
    assert one.proof is not None  # it is in force
    use = AllowanceUse(
        id=one.id,
        number=one.used + taken.get(one.id, 0) + 1,
        of=one.terms.count,
        by=one.makers,
    )
    return Allowed(use=use, proof=one.proof)


def _of_request(connection: Connection, approval: Approval) -> Allowance:
    """Read the allowance that a request names. Raises NotConfirmed."""
    assert approval.allowance is not None
    try:
        one = allowances.one(approval.allowance, connection)
    except AllowanceBroken as exc:
        raise NotConfirmed(str(exc)) from exc
    if one is None or one.confirmed_by is None:
        raise NotConfirmed("there is no such allowance")
    return one


def _check_use(connection: Connection, approval: Approval) -> datetime:
    """Raise NotConfirmed unless the use of this request is stored. Return the time of the database."""
    row = pool.row(
        connection,
        _USE,
        {
            "allowance": approval.allowance,
            "seq": (approval.allowance_use or 0) + FIRST_USE - 1,
            "approval": approval.id,
            "run": approval.run_id,
            "frame": approval.frame,
            "call": approval.call,
        },
    )
    assert row is not None  # a SELECT without FROM has one row
    if not row[1]:
        raise NotConfirmed("the use of the allowance is not stored")
    return clock.to_utc(row[0])
