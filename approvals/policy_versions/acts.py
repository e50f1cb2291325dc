"""Reads the signed acts on versions of the policy, and adds one.

The acts are numbered from 1 without gaps. A missing or changed act is an error, never a weaker policy: then calls wait
for people. Deleting the newest acts is not noticed, so neither web nor workers have the right to delete one.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from approvals import clock
from approvals.errors import ApprovalError
from approvals.models import PolicyAct
from approvals.permissions import signatures
from runtime.store import pool

Act = PolicyAct.PolicyChange

# Read by each step that checks a call: with the engine's connections, because a worker has few of Django's.
_COUNT: Final = "SELECT count(*), clock_timestamp() FROM approvals_policyact"

FIRST_NUMBER = 2  # version 1 is the default policy, which has no act


class PolicyBroken(ApprovalError):
    """The stored acts on policies are not those that were signed."""

    status, code = 409, "policy_broken"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyVersion:
    """A version with its acts. `effective_at` is None until another admin confirms it, and if it was withdrawn."""

    number: int
    text: str
    author: str | None
    proposed_at: datetime
    effective_at: datetime | None = None
    confirmed_by: str | None = None
    scheduled: bool = False  # by the only admin
    withdrawn: bool = False
    order: int = 0  # the act by which it takes effect

    def waits(self, at: datetime) -> bool:
        """Tell whether the version is not in force yet and may still be."""
        return not self.withdrawn and (self.effective_at is None or self.effective_at > at)


def versions() -> tuple[PolicyVersion, ...]:
    """Read and verify every act. Raises PolicyBroken."""
    found = dict[int, PolicyVersion]()
    for count, row in enumerate(PolicyAct.objects.order_by("seq"), 1):
        if row.seq != count:
            raise PolicyBroken(f"act {count} on the policy is missing")
        if not signatures.is_valid(row):
            raise PolicyBroken(f"act {count} on the policy is not the one that was signed")
        found[row.number] = _after(found.get(row.number), row)
    return tuple(found.values())


def in_force(found: tuple[PolicyVersion, ...], at: datetime) -> PolicyVersion | None:
    """Return the version in force at this time, the one that was put in force last; None for the default policy.

    So a version that waited for its day does not replace one that was confirmed meanwhile.
    """
    past = [
        one
        for one in found
        if not one.withdrawn and one.effective_at is not None and one.effective_at <= at
    ]
    return max(past, key=lambda one: one.order, default=None)


def append(
    *, act: Act, number: int, by: str | None, text: str = "", effective_at: datetime | None = None
) -> PolicyAct:
    """Sign and add an act. The caller holds the lock of `locked`."""
    last = PolicyAct.objects.order_by("-seq").values_list("seq", flat=True).first()
    row = PolicyAct(
        seq=(last or 0) + 1,
        act=act,
        number=number,
        text=text,
        by=by,
        at=clock.now(),
        effective_at=effective_at,
    )
    signatures.sign(row)
    row.save(force_insert=True)
    return row


def count() -> tuple[int, datetime]:
    """Return the number of acts, and the time of the database."""
    with pool.in_transaction() as connection:
        found = pool.row(connection, _COUNT, {})
    assert found is not None  # a SELECT of a count has one row
    number, at = found
    return number, clock.to_utc(at)


def _after(before: PolicyVersion | None, row: PolicyAct) -> PolicyVersion:
    """Return the version after this act."""
    if row.act == Act.PROPOSED and before is None:
        return PolicyVersion(number=row.number, text=row.text, author=row.by, proposed_at=row.at)
    if row.act == Act.PROPOSED or before is None:
        raise PolicyBroken(f"act {row.seq} on the policy is about no proposed version")
    withdrawn = row.act == Act.WITHDRAWN
    return PolicyVersion(
        number=before.number,
        text=before.text,
        author=before.author,
        proposed_at=before.proposed_at,
        effective_at=None if withdrawn else row.effective_at,
        confirmed_by=row.by if row.act == Act.CONFIRMED else before.confirmed_by,
        scheduled=row.act == Act.SCHEDULED,
        withdrawn=withdrawn,
        order=row.seq,
    )
