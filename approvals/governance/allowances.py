"""The allowances, from the acts on them: proposed, confirmed, its uses, and at last revoked.

People sign theirs, so a program that only writes to Postgres cannot make an allowance or extend one; a use that it
adds only takes one away.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from approvals.errors import AllowanceBroken
from approvals.models import AllowanceAct
from approvals.rules import allowance_terms as stored_terms
from approvals.rules.allowance_terms import Terms
from approvals.signed import rows as signed_rows
from approvals.signed.rows import SignedLog
from runtime.store import pool

Act = AllowanceAct.AllowanceChange
State = Literal["proposed", "in force", "used up", "ended", "revoked"]

FIRST_USE = 3  # the number of the act of the first use
MAX_LISTED = 200

# The acts before the uses: a forged use makes the sequence skip a number, which verification detects.
_ACTS = f"""
    SELECT {", ".join(signed_rows.list_columns(AllowanceAct))} FROM approvals_allowanceact
    WHERE allowance = ANY(%(ids)s) AND act <> 'used' ORDER BY allowance, seq
"""
_USES = """
    SELECT allowance, count(*), max(seq) FROM approvals_allowanceact
    WHERE allowance = ANY(%(ids)s) AND act = 'used' GROUP BY allowance
"""
_OF_TOOL = """
    SELECT allowance FROM approvals_allowanceact
    WHERE act = 'confirmed' AND tool = %(tool)s AND ends_at > clock_timestamp() ORDER BY at, id
"""
_LIVE_TOOLS = """
    SELECT DISTINCT tool FROM approvals_allowanceact
    WHERE act = 'confirmed' AND ends_at > clock_timestamp()
"""
_NEWEST = f"""
    SELECT allowance FROM approvals_allowanceact WHERE act = 'proposed' ORDER BY id DESC LIMIT {MAX_LISTED}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """An allowance with its acts. `proof` are the signed text of its confirmation, signature and key id."""

    id: UUID
    terms: Terms
    proposed_by: str
    proposed_at: datetime
    confirmed_by: str | None = None
    confirmed_at: datetime | None = None
    revoked_by: str | None = None
    revoked_at: datetime | None = None
    reason: str = ""
    used: int = 0
    proof: tuple[str, str, str] | None = None

    @property
    def makers(self) -> tuple[str, ...]:
        """The people who made it: who proposed it, and who confirmed it."""
        return (self.proposed_by, *([self.confirmed_by] if self.confirmed_by else []))

    @property
    def left(self) -> int:
        """The number of calls that it may still pass."""
        return max(0, self.terms.count - self.used)

    @property
    def next_act(self) -> int:
        """The number of the act that comes next."""
        return FIRST_USE + self.used if self.confirmed_at else 2

    def state(self, at: datetime) -> State:
        """Return its state at this time."""
        if self.revoked_at is not None:
            return "revoked"
        if self.terms.ends_at <= at:
            return "ended"
        if self.confirmed_at is None:
            return "proposed"
        return "in force" if self.left else "used up"


def read_tool_allowances(connection: pool.Connection, tool: str) -> tuple[Allowance, ...]:
    """Read the confirmed allowances of a tool that have not ended. Raises AllowanceBroken."""
    return _read(connection, _read_ids(connection, _OF_TOOL, {"tool": tool}))


def read_newest() -> tuple[tuple[Allowance, ...], tuple[str, ...]]:
    """Read the newest allowances, the newest first, and why others do not verify."""
    with pool.join_transaction() as connection:
        ids = _read_ids(connection, _NEWEST, {})
        acts, uses = _read_rows(connection, ids)
    verified, broken = list[Allowance](), list[str]()
    for key in dict.fromkeys(ids):
        try:
            verified.append(_build(acts[key], *uses.get(key, (0, 0))))
        except AllowanceBroken as exc:
            broken.append(str(exc))
    return tuple(verified), tuple(broken)


def read_allowance(allowance: UUID, connection: pool.Connection | None = None) -> Allowance | None:
    """Read one allowance, None if there is none. Raises AllowanceBroken."""
    if connection is not None:
        return next(iter(_read(connection, [allowance])), None)
    with pool.join_transaction() as ours:
        return next(iter(_read(ours, [allowance])), None)


def read_live_tools(connection: pool.Connection) -> frozenset[str]:
    """Return the tools with a confirmed allowance that has not ended."""
    return frozenset(row[0] for row in connection.execute(_LIVE_TOOLS).fetchall())


def append(
    allowance: UUID,
    act: Act,
    *,
    by: str | None,
    seq: int,
    terms: Terms | None = None,
    **values: Any,
) -> None:
    """Sign and add a person's act. Raises IntegrityError if another act was faster."""
    if terms is not None:
        values |= {"tool": terms.action.tool, "ends_at": terms.ends_at, "terms": terms.text()}
    LOG.append(act, by=by, allowance=allowance, seq=seq, **values)


def _read_ids(connection: pool.Connection, query: str, parameters: dict[str, Any]) -> list[UUID]:
    return [row[0] for row in connection.execute(query, parameters).fetchall()]


def _read(connection: pool.Connection, ids: Sequence[UUID]) -> tuple[Allowance, ...]:
    acts, uses = _read_rows(connection, ids)
    return tuple(_build(acts[key], *uses.get(key, (0, 0))) for key in ids if key in acts)


def _read_rows(
    connection: pool.Connection, ids: Sequence[UUID]
) -> tuple[dict[UUID, list[AllowanceAct]], dict[UUID, tuple[int, int]]]:
    """Read the signed acts of each allowance, and the number of its uses with that of the last one's act."""
    acts: dict[UUID, list[AllowanceAct]] = {}
    if not ids:
        return acts, {}
    for row in LOG.make_rows(connection.execute(_ACTS, {"ids": list(ids)}).fetchall()):
        acts.setdefault(row.allowance, []).append(row)
    uses = connection.execute(_USES, {"ids": list(ids)}).fetchall()
    return acts, {allowance: (count, last) for allowance, count, last in uses}


def _build(rows: Iterable[AllowanceAct], used: int, last_use: int) -> Allowance:
    """Build an allowance of its acts. Raises AllowanceBroken."""
    verified = LOG.require_verified(rows, (1, 2, FIRST_USE + used))
    allowance = LOG.fold(verified, None)
    if allowance is None or (used and (allowance.confirmed_at is None or last_use != used + 2)):
        raise AllowanceBroken("an act on an allowance is missing")
    return replace(allowance, used=used)


def _apply_act(before: Allowance | None, row: AllowanceAct) -> Allowance:
    match row.act:
        case Act.PROPOSED if before is None and row.by is not None:
            return Allowance(
                id=row.allowance,
                terms=_decode_terms(row),
                proposed_by=row.by,
                proposed_at=row.at,
            )
        case Act.CONFIRMED if before is not None and row.seq == 2:
            is_same = (row.terms, row.proposed_by) == (before.terms.text(), before.proposed_by)
            if is_same and row.by is not None and row.by != before.proposed_by:
                proof = (signed_rows.build_signed_text(row), row.signature, row.key_id)
                return replace(before, confirmed_by=row.by, confirmed_at=row.at, proof=proof)
        case Act.REVOKED if before is not None and before.revoked_at is None:
            return replace(
                before,
                revoked_by=row.by,
                revoked_at=row.at,
                reason=str(row.reason),
            )
    raise AllowanceBroken(f"act {row.seq} on {row.allowance} does not follow the acts before it")


def _decode_terms(row: AllowanceAct) -> Terms:
    try:
        terms = stored_terms.read(row.terms)
        if (terms.action.tool, terms.ends_at) == (row.tool, row.ends_at):
            return terms
        exc: Exception | None = None
    except (ValueError, KeyError, TypeError) as problem:
        exc = problem
    raise AllowanceBroken(f"the terms of {row.allowance} cannot be read") from exc


LOG = SignedLog(
    AllowanceAct,
    "allowance",
    noun="{0.allowance}",
    start=lambda **_: None,
    apply=_apply_act,
    broken=AllowanceBroken,
)
