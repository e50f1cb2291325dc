"""Compares a request with the usual calls of its tool: each argument with its past values and the last approval.

The oddest argument comes first. What always differs, as ids do, is kept apart.
"""

from collections.abc import Collection
from dataclasses import dataclass

from approvals.queries.past_calls.similar import ArgumentDifference, ComparedArgument, Similar
from approvals.queries.past_calls.usual import DAYS
from approvals.rules.oddity import ORDER, Oddity
from approvals.rules.past_values import MIN_HISTORY, PastValues
from approvals.rules.unusual_values import always_differs, usual


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """An argument: how it differs from the last approval, whether it is odd, and its usual values in words."""

    change: ComparedArgument
    is_odd: bool
    usual: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalComparison:
    """The last similar approval, and the arguments in three groups: to look at, always different, the same."""

    last: Similar
    past: PastValues
    rows: tuple[Compared, ...]
    varying: tuple[ComparedArgument, ...]
    same: tuple[ComparedArgument, ...]
    days: int = DAYS
    needed: int = MIN_HISTORY


def compare(last: Similar, past: PastValues, oddities: Collection[Oddity]) -> ApprovalComparison:
    """Sort the changes since the last similar approval by their oddness."""
    weights = dict[str, int]()
    for one in oddities:
        weights[one.argument] = min(weights.get(one.argument, len(ORDER)), one.weight)
    rows, varying, same = list[Compared](), list[ComparedArgument](), list[ComparedArgument]()
    for change in last.changes:
        is_odd = change.name in weights
        said = usual(change.name, past)
        if change.difference is ArgumentDifference.SAME and not is_odd:
            same.append(change)
        elif not is_odd and not said and always_differs(change.name, past):
            varying.append(change)
        else:
            rows.append(Compared(change=change, is_odd=is_odd, usual="" if is_odd else said))
    rows.sort(key=lambda row: weights.get(row.change.name, len(ORDER)))
    return ApprovalComparison(
        last=last, past=past, rows=tuple(rows), varying=tuple(varying), same=tuple(same)
    )
