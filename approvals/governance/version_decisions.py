"""Signs an admin's decision on a change of an agent, and verifies it for each run that reaches the change later.

The decision names both versions by their fingerprints, which are digests of the definitions, so it covers no other
change. It counts for a run as a decision at the run's own version gate would: not for a run of the admin's own, and
only while the admin may still decide. It names the number of withdrawals before it, and counts until there is another
one. So a copy of an earlier decision does not count.
"""

import logging
from collections.abc import Collection
from datetime import datetime
from uuid import UUID

from approvals import clock
from approvals.models import Approval, VersionDecision, approval_rows
from approvals.rights import approvals, principals
from approvals.rights.principals import Principal
from approvals.rights.scopes import Scope
from approvals.signed import rows as signed_rows
from runtime.core.run.continuation import merge_people
from runtime.core.values.enums import GateKind, Risk
from runtime.errors import Forbidden
from runtime.ports.access import Actor
from runtime.store import pool

log = logging.getLogger(__name__)

_NAMES = (*VersionDecision.SIGNED_FIELDS, "signature", "key_id")
_RECENT = 20  # decisions on one pair that are tried
_READ = f"""
    SELECT coalesce((SELECT origin FROM runtime_run WHERE id = %(run)s), '[]'::jsonb),
        {principals.credentials_sql("d.by")}, {", ".join(f"d.{one}" for one in _NAMES)}
    FROM approvals_versiondecision d
    WHERE d.agent = %(agent)s AND d.before = %(before)s AND d.after = %(after)s
        AND d.withdrawn = (SELECT count(*) FROM approvals_versionwithdrawal w
            WHERE w.agent = d.agent AND w.before = d.before AND w.after = d.after)
    ORDER BY d.id DESC LIMIT {_RECENT}
"""


def decider(
    *,
    run: UUID,
    agent: str,
    before: str,
    after: str,
    requester: str,
    origin: Collection[str],
) -> str | None:
    """Return the admin whose decision on this pair counts for this run, None without one.

    A row that does not verify is no decision: then people are asked. `origin` is by the journal. The run's row also
    names the people whose signals wait there.
    """
    given = {"run": run, "agent": agent, "before": before, "after": after}
    with pool.in_transaction() as connection:
        rows = connection.execute(_READ, given).fetchall()
    for steered, held, *values in rows:
        row = VersionDecision(**dict(zip(_NAMES, values, strict=True)))
        if _counts(row, held, requester, merge_people(origin, approval_rows.texts(steered))):
            return row.by
    return None


def refusal(
    principal: Principal | None, *, requester: str = "", origin: Collection[str] = ()
) -> Forbidden | None:
    """Say why this person may not decide the changes of such a run, by the rules of a version gate; None if they may.

    Raises nothing. Without `requester` only the person's own rights are checked.
    """
    if principal is not None and not principal.has(Scope.ADMIN):
        return Forbidden("not_eligible", f"{principal.person} is no admin.")
    approval = Approval(
        kind=GateKind.VERSION,
        risk=Risk.HIGH,
        requester=requester,
        origin=[*origin],
        excluded=[*origin],
        rule=None,
    )
    return approvals.denial(principal, approval)


def _counts(
    row: VersionDecision, held: str | None, requester: str, origin: Collection[str]
) -> bool:
    at = row.at if isinstance(row.at, datetime) else None
    if at is None or not signed_rows.is_valid(row):
        log.error("A decision on versions of %s is not the one that was signed", row.agent)
        return False
    actor = Actor(person=row.by)
    principal = principals.from_rights(actor, held, clock.to_utc(at), past=True)
    return refusal(principal, requester=requester, origin=origin) is None
