"""Reads the history of decisions: closed requests with verdict, reason, channel and outcome, the latest first.

A page costs the same beside any number of decisions. It walks one index, that of one of its filters, and checks the
other filters and the reader's rights on at most SCANNED rows. If it has found too few by then, it ends early, and the
next page continues from there.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet, TextField, Value
from django.db.models.lookups import Exact

from approvals import policy, stored_rows
from approvals.models import ASKING_AGENT, ROOT_AGENT, Outcome, Request
from approvals.permissions import request_rules
from approvals.permissions.principals import Principal
from approvals.permissions.scopes import Scope
from approvals.queries import cursors, filters
from approvals.queries.decision_filters import CHANGES_REQUESTED, DecisionFilter
from approvals.requests import statements, verification
from runtime.core.enums import GateKind
from runtime.errors import InvalidInput
from runtime.ports.approvals import CallOutcome

LIMIT = 50
MAX_LIMIT = 500
SCANNED = 5_000

_PEOPLES = (Request.Status.APPROVED, Request.Status.DENIED, Request.Status.ANSWERED)
_Place = tuple[datetime, UUID]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A closed request.

    `edited` says that the call was approved with changes, `changes_requested` that it was denied with a request for
    them. `channel` is `page`, `batch` or `api`, None if it is not known or no person decided; it is `allowance` if
    `allowance` passed the call. `outcome` is a CallOutcome, None if the call has not ended or its outcome was not
    recorded; `position` is the journal entry that has its result. `tampered` names the first stored value that does
    not verify.
    """

    id: UUID
    run: UUID
    kind: str
    frame: str
    call: str
    tool: str
    path: tuple[str, ...]
    risk: str
    sentence: str
    requester: str
    status: str
    decided_by: str | None
    created_at: datetime
    decided_at: datetime
    reason: str
    edited: bool
    changes_requested: bool
    channel: str | None
    outcome: str | None
    position: int | None
    tampered: str | None
    allowance: UUID | None = None

    @property
    def verdict(self) -> str:
        """The verdict, as filters name it."""
        return CHANGES_REQUESTED if self.changes_requested else self.status

    @property
    def took(self) -> timedelta | None:
        """The time from request to decision; None if no person decided."""
        decided = self.status in _PEOPLES and self.allowance is None
        return self.decided_at - self.created_at if decided else None

    @property
    def seconds_to_decide(self) -> float | None:
        """The same in seconds."""
        return None if self.took is None else self.took.total_seconds()


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPage:
    """One page of the history; `next` is the cursor of the page after it, None at the end.

    `until` is the time of the last row that was looked at, if the page ended early.
    """

    items: tuple[Decision, ...]
    next: str | None
    until: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Walk:
    """A walk of one index: its condition, and the names of its columns of time and id.

    `alone` is the same walk without a join, if the index is of another table than the requests.
    """

    where: Q
    model: type[Request | Outcome] = Request
    at: str = "decided_at"
    id: str = "id"
    alone: "_Walk | None" = None

    def rows(self, chosen: DecisionFilter, after: _Place | None) -> QuerySet[Any]:
        """Return the rows of the time that the filter chooses, after a place, in order."""
        rows = self.model.objects.filter(self.where, decided_at__isnull=False)
        if chosen.since is not None:
            rows = rows.filter(self._is("gte", chosen.since))
        if chosen.until is not None:
            rows = rows.filter(self._is("lt", chosen.until))
        if after is not None:
            # The plain bound beside the pair lets Postgres start the walk there.
            rows = rows.filter(self._is("lte", after[0]), self._beyond("lt", after))
        return rows.order_by(f"-{self.at}", f"-{self.id}")

    def end(self, chosen: DecisionFilter, after: _Place | None) -> _Place | None:
        """Return the place of the last row to look at, None if there are fewer than SCANNED."""
        walk = self.alone or self
        places = walk.rows(chosen, after).values_list(walk.at, walk.id)
        return places[SCANNED - 1 : SCANNED].first()

    def until(self, end: _Place) -> Q:
        """Return the condition for rows up to that place."""
        return self._is("gte", end[0]) & (self._beyond("gt", end) | Q(**{self.id: end[1]}))

    def _beyond(self, order: str, place: _Place) -> Q:
        at, last = place
        return self._is(order, at) | Q(**{self.at: at, f"{self.id}__{order}": last})

    def _is(self, lookup: str, at: datetime) -> Q:
        return Q(**{f"{self.at}__{lookup}": at})


def page(
    principal: Principal | None,
    chosen: DecisionFilter,
    *,
    limit: int = LIMIT,
    cursor: str | None = None,
) -> HistoryPage:
    """Read one page of the decisions that this principal may read. Raises InvalidInput naming `limit` or `cursor`."""
    if not 1 <= limit <= MAX_LIMIT:
        raise InvalidInput("limit", f"must be from 1 to {MAX_LIMIT}")
    place = None if cursor is None else cursors.decoded(cursor, parts=2)[1:]
    rest = request_rules.readable_requests(principal) & _condition(chosen)
    found, ends = list[Request](), list[_Place]()
    for walk in _walks(principal, chosen):
        rows = walk.rows(chosen, place)
        if end := walk.end(chosen, place):
            ends.append(end)
            rows = rows.filter(walk.until(end))
        found += rows.filter(rest).select_related("outcome")[: limit + 1]
    return _page(found, max(ends, default=None), limit)


def open_in_doubt(
    principal: Principal | None, items: Collection[Decision]
) -> dict[tuple[UUID, str, str], UUID]:
    """Return the open request about each call in doubt among these, by run, frame and call."""
    runs = [item.run for item in items if item.outcome == CallOutcome.IN_DOUBT]
    if not runs:
        return {}
    rows = Request.objects.filter(
        request_rules.readable_requests(principal),
        run__in=runs,
        kind=GateKind.IN_DOUBT,
        status=Request.Status.PENDING,
    )
    return {
        (run, frame, call): request
        for run, frame, call, request in rows.values_list("run", "frame", "call", "id")
    }


def outcome_of(request: UUID) -> str:
    """Return the recorded outcome of a request's call, empty if there is none. The caller may read the request."""
    return Outcome.objects.filter(request=request).values_list("outcome", flat=True).first() or ""


def _page(found: Collection[Request], end: _Place | None, limit: int) -> HistoryPage:
    """Return the rows of all walks in order, up to the first place at which a walk ended early."""
    ordered = sorted(found, key=_place, reverse=True)
    known = [row for row in ordered if end is None or _place(row) >= end]
    items = tuple(_decision(row) for row in known[:limit])
    if len(known) > limit:
        last = _place(known[limit - 1])
        return HistoryPage(items=items, next=cursors.encoded(*last), until=None)
    return HistoryPage(
        items=items,
        next=None if end is None else cursors.encoded(*end),
        until=None if end is None else end[0],
    )


def _place(row: Request) -> _Place:
    assert row.decided_at is not None  # it is closed
    return row.decided_at, row.id


def _walks(principal: Principal | None, chosen: DecisionFilter) -> tuple[_Walk, ...]:
    """Choose the index to walk. Two hold the agents: that of the run, and the one that proposed the call."""
    if principal is not None and _reads_only_own(principal):
        return (_Walk(where=Q(requester=principal.person)),)
    if chosen.outcome:
        alone = _Walk(where=Q(outcome=chosen.outcome), model=Outcome, id="request_id")
        where = Q(outcome__outcome=chosen.outcome)
        at, last = "outcome__decided_at", "outcome__request_id"
        return (_Walk(where=where, at=at, id=last, alone=alone),)
    if chosen.person:
        return (_Walk(where=Q(decided_by=chosen.person)),)
    if chosen.by:
        return (_Walk(where=Q(requester=chosen.by)),)
    if chosen.tool:
        return (_Walk(where=Q(tool=chosen.tool)),)
    if chosen.agent:
        root, asking = _is_agent(ROOT_AGENT, chosen), _is_agent(ASKING_AGENT, chosen)
        return (_Walk(where=root), _Walk(where=asking & ~root))
    return (_Walk(where=Q()),)


def _reads_only_own(principal: Principal) -> bool:
    return not principal.has(Scope.ADMIN) and not policy.risks_decided_by(principal.groups)


def _condition(chosen: DecisionFilter) -> Q:
    found = filters.condition(chosen.words)
    exact = {
        "decided_by": chosen.person,
        "requester": chosen.by,
        "tool": chosen.tool,
        "risk": chosen.risk,
        "outcome__outcome": chosen.outcome,
    }
    found &= Q(**{name: value for name, value in exact.items() if value})
    if chosen.verdict:
        found &= _is_verdict(chosen.verdict)
    if chosen.agent:
        found &= _is_agent(ROOT_AGENT, chosen) | _is_agent(ASKING_AGENT, chosen)
    return found


def _is_verdict(verdict: str) -> Q:
    """Return the condition for a verdict. A request for changes is a denial by its statement."""
    changes = Q(statement__contains=statements.CHANGES_REQUESTED)
    if verdict == CHANGES_REQUESTED:
        return Q(status=Request.Status.DENIED) & changes
    found = Q(status=verdict)
    return found & ~changes if verdict == Request.Status.DENIED else found


def _is_agent(agent: Any, chosen: DecisionFilter) -> Q:
    return Q(Exact(agent, Value(chosen.agent, TextField())))


def _decision(row: Request) -> Decision:
    """Verify a row and return it as plain data."""
    tampered, outcome = verification.fault(row), getattr(row, "outcome", None)
    at, _ = _place(row)
    return Decision(
        id=row.id,
        run=row.run_id,
        kind=row.kind,
        frame=row.frame,
        call=row.call,
        tool=row.tool,
        path=tuple(stored_rows.texts(row.path)),
        risk=row.risk,
        sentence=f"Tampered with: {row.sentence}" if tampered else row.sentence,
        requester=row.requester,
        status=row.status,
        decided_by=row.decided_by,
        created_at=row.created_at,
        decided_at=at,
        reason=row.reason or "",
        edited=row.edited is not None,
        changes_requested=statements.requests_changes(row),
        channel=row.channel,
        allowance=row.allowance,
        outcome=outcome and outcome.outcome,
        position=outcome and outcome.position,
        tampered=tampered,
    )
