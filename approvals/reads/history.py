"""Reads the history of decisions: closed requests with verdict, reason, channel and outcome, the latest first.

A page costs the same beside any number of decisions. It walks one index, that of one of its filters, and checks the
other filters and the reader's rights on at most SCANNED rows. If it has found too few by then, it ends early, and the
next page continues from there.

Builds the evidence of one decision: the signed text with its signature, for an auditor who has the public key.
"""

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Q, QuerySet, TextField, Value
from django.db.models.lookups import Exact

from approvals.models import ASKING_AGENT, IN_DOUBT, ROOT_AGENT, Approval, ApprovalOutcome
from approvals.reads import approval_views, filters
from approvals.requests import argument_changes, verification
from approvals.rights import approval_rights as request_rules
from approvals.rights.principals import Principal, Scope
from approvals.rules import policy
from approvals.signed import statements, votes
from runtime.core.documents import external_call
from runtime.core.values.verdicts import IN_HISTORY, VERDICTS
from runtime.errors import InvalidInput, KeyMissing
from runtime.keyring import files, purposes, sealing, signatures
from runtime.ports.approvals import CallOutcome, NotConfirmed

LIMIT = 50
MAX_LIMIT = 500
SCANNED = 5_000

PEOPLES = (Approval.Status.APPROVED, Approval.Status.DENIED, Approval.Status.ANSWERED)
_Position = tuple[datetime, UUID]
_VOTES = f"SELECT r.id, {votes.build_votes_sql()} FROM approvals_approval r WHERE r.id = ANY(%s)"
_FACTS = (
    "id", "run", "kind", "tool", "path", "risk", "requester", "status", "created_at",
    "decided_by", "decided_for", "decided_at", "effective_at", "channel", "rule", "policy_version", "voted",
    "authenticated",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class PastDecision(approval_views.ApprovalView):
    """A closed approval.

    `voters` gave the approvals that the policy asked for, `decided_by` among them unless that person denied. `edits`
    are the changes of an approval with changes, unless retention removed them. `channel` is `page`, `batch`, `slack` or
    `api`, None if it is not known or no person decided; it is `allowance` if `allowance` passed the call. `outcome` is
    a CallOutcome, None if the call has not ended or its outcome was not recorded; `position` is the journal entry that
    has its result.
    """

    outcome: str | None
    position: int | None
    voters: tuple[votes.Cast, ...]
    edits: tuple[argument_changes.ArgumentChange, ...]

    @property
    def verdict(self) -> str:
        """The verdict, as filters name it."""
        return (self.words and self.words.in_history) or self.stored.status

    @property
    def took(self) -> timedelta | None:
        """The time from request to decision; None if no person decided."""
        is_theirs = self.stored.status in PEOPLES and self.stored.allowance is None
        if not is_theirs or self.stored.decided_at is None:
            return None
        return self.stored.decided_at - self.stored.created_at

    @property
    def seconds_to_decide(self) -> float | None:
        """The same in seconds."""
        return None if self.took is None else self.took.total_seconds()


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPage:
    """One page of the history; `next` is the cursor of the page after it, None at the end.

    `until` is the time of the last row that was looked at, if the page ended early.
    """

    items: tuple[PastDecision, ...]
    next: str | None
    until: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Walk:
    """A walk of one index: its condition, and the names of its columns of time and id.

    `filter` is a further condition, which is checked on the rows of the walk. `alone` is the same walk without a join,
    if the index is of another table than the requests.
    """

    condition: Q
    model: type[Approval | ApprovalOutcome] = Approval
    at: str = "decided_at"
    id: str = "id"
    filter: Q = field(default_factory=Q)
    alone: "_Walk | None" = None

    def rows(self, criteria: filters.DecisionFilter, after: _Position | None) -> QuerySet[Any]:
        """Return the rows of the time that the filter chooses, after a place, in order."""
        rows = self.model.objects.filter(self.condition, decided_at__isnull=False)
        if criteria.since is not None:
            rows = rows.filter(self._is("gte", criteria.since))
        if criteria.until is not None:
            rows = rows.filter(self._is("lt", criteria.until))
        if after is not None:
            # The plain bound beside the pair lets Postgres start the walk there.
            rows = rows.filter(self._is("lte", after[0]), self._beyond("lt", after))
        return rows.order_by(f"-{self.at}", f"-{self.id}")

    def end(self, criteria: filters.DecisionFilter, after: _Position | None) -> _Position | None:
        """Return the place of the last row to look at, None if there are fewer than SCANNED."""
        walk = self.alone or self
        places = walk.rows(criteria, after).values_list(walk.at, walk.id)
        return places[SCANNED - 1 : SCANNED].first()

    def until(self, end: _Position) -> Q:
        """Return the condition for rows up to that place."""
        return self._is("gte", end[0]) & (self._beyond("gt", end) | Q(**{self.id: end[1]}))

    def _beyond(self, order: str, position: _Position) -> Q:
        at, last = position
        return self._is(order, at) | Q(**{self.at: at, f"{self.id}__{order}": last})

    def _is(self, lookup: str, at: datetime) -> Q:
        return Q(**{f"{self.at}__{lookup}": at})


def read_page(
    principal: Principal | None,
    criteria: filters.DecisionFilter,
    *,
    limit: int = LIMIT,
    cursor: str | None = None,
) -> HistoryPage:
    """Read one page of the decisions that this principal may read. Raises InvalidInput naming `limit` or `cursor`."""
    if not 1 <= limit <= MAX_LIMIT:
        raise InvalidInput("limit", f"must be from 1 to {MAX_LIMIT}")
    after = None if cursor is None else approval_views.decode_cursor(cursor, parts=2)[1:]
    conditions = request_rules.match_readable_requests(principal) & _build_condition(criteria)
    approvals, ends = list[Approval](), list[_Position]()
    for walk in _choose_walks(principal, criteria):
        rows = walk.rows(criteria, after)
        if last := walk.end(criteria, after):
            ends.append(last)
            rows = rows.filter(walk.until(last))
        approvals += rows.filter(conditions & walk.filter).select_related("outcome")[: limit + 1]
    # The rows of all walks in order, up to the first place at which a walk ended early.
    end, ordered = max(ends, default=None), sorted(approvals, key=_make_position, reverse=True)
    complete = [approval for approval in ordered if end is None or _make_position(approval) >= end]
    listed = complete[:limit]
    votes_by_approval = _read_votes(approval.id for approval in listed if approval.rule is not None)
    items = tuple(
        _build_past_decision(approval, votes_by_approval.get(approval.id)) for approval in listed
    )
    if len(complete) > limit:
        last = _make_position(complete[limit - 1])
        return HistoryPage(items=items, next=approval_views.encode_cursor(*last), until=None)
    return HistoryPage(
        items=items,
        next=None if end is None else approval_views.encode_cursor(*end),
        until=None if end is None else end[0],
    )


def open_in_doubt(
    principal: Principal | None, items: Collection[PastDecision]
) -> dict[tuple[UUID, str, str], UUID]:
    """Return the open request about each call in doubt among these, by run, frame and call."""
    runs = [item.run for item in items if item.outcome == CallOutcome.IN_DOUBT]
    if not runs:
        return {}
    rows = Approval.objects.filter(
        request_rules.match_readable_requests(principal),
        IN_DOUBT,
        run__in=runs,
        status=Approval.Status.PENDING,
    )
    return {
        (run, frame, call): approval_id
        for run, frame, call, approval_id in rows.values_list("run", "frame", "call", "id")
    }


def read_outcome(approval_id: UUID) -> str:
    """Return the recorded outcome of a request's call, empty if there is none. The caller may read the request."""
    return (
        ApprovalOutcome.objects.filter(approval=approval_id)
        .values_list("outcome", flat=True)
        .first()
        or ""
    )


def _make_position(approval: Approval) -> _Position:
    assert approval.decided_at is not None  # it is closed
    return approval.decided_at, approval.id


def _choose_walks(
    principal: Principal | None, criteria: filters.DecisionFilter
) -> tuple[_Walk, ...]:
    """Choose the index to walk. Two hold the agents: that of the run, and the one that proposed the call."""
    if principal is not None and not (
        principal.has(Scope.ADMIN) or policy.list_decidable_risks(principal.groups)
    ):
        return (_Walk(condition=Q(requester=principal.person), filter=_is_person(criteria.person)),)
    if criteria.outcome:
        alone = _Walk(
            condition=Q(outcome=criteria.outcome), model=ApprovalOutcome, id="approval_id"
        )
        condition = Q(outcome__outcome=criteria.outcome)
        at, last = "outcome__decided_at", "outcome__approval_id"
        return (
            _Walk(
                condition=condition, at=at, id=last, filter=_is_person(criteria.person), alone=alone
            ),
        )
    if criteria.person:
        # The indexes of deciders, of absent people, and of requests with votes.
        by, absent = Q(decided_by=criteria.person), Q(decided_for=criteria.person)
        return (
            _Walk(condition=by),
            _Walk(condition=absent, filter=~by),
            _Walk(condition=~Q(voted=[]), filter=_is_voter(criteria.person) & ~by & ~absent),
        )
    if criteria.by:
        return (_Walk(condition=Q(requester=criteria.by)),)
    if criteria.tool or criteria.instance:
        return (_Walk(condition=Q(tool=criteria.tool or external_call.TOOL)),)
    if criteria.agent:
        root, asking = _is_agent(ROOT_AGENT, criteria), _is_agent(ASKING_AGENT, criteria)
        asking &= ~Q(Exact(ASKING_AGENT, ROOT_AGENT))  # their index has no others
        return (_Walk(condition=root), _Walk(condition=asking))
    return (_Walk(condition=Q()),)


def _build_condition(criteria: filters.DecisionFilter) -> Q:
    condition = filters.build_condition(criteria.words)
    exact = {
        "requester": criteria.by,
        "tool": criteria.tool,
        "risk": criteria.risk,
        "outcome__outcome": criteria.outcome,
    }
    condition &= Q(**{name: value for name, value in exact.items() if value})
    if criteria.instance:
        condition &= filters.match_instance(criteria.instance)
    if criteria.verdict:
        condition &= is_verdict(criteria.verdict)
    if criteria.agent:
        condition &= _is_agent(ROOT_AGENT, criteria) | _is_agent(ASKING_AGENT, criteria)
    return condition


def is_verdict(verdict: str) -> Q:
    """Return the condition for a verdict. What the status does not tell is in the statement."""
    condition = Q(status=verdict)
    for decided, name in IN_HISTORY.items():
        status = VERDICTS[decided].status
        listed = Q(statement__contains=statements.format_verdict(decided))
        if verdict == name:
            return listed & Q(status=status)
        if verdict == status:
            condition &= ~listed
    return condition


def _is_person(person: str) -> Q:
    """Return the condition for requests that this person decided or voted on; no condition without a name."""
    if not person:
        return Q()
    return Q(decided_by=person) | Q(decided_for=person) | _is_voter(person)


def _is_voter(person: str) -> Q:
    """Return the condition for requests on which this person voted, or a deputy in their place."""
    return Q(voted__contains=[person]) | Q(voted_for__contains=[person])


def _is_agent(agent: Any, criteria: filters.DecisionFilter) -> Q:
    return Q(Exact(agent, Value(criteria.agent, TextField())))


def _read_votes(approval_ids: Iterable[UUID]) -> dict[UUID, str | None]:
    """Return the votes on each of these requests, as `votes.read` reads them."""
    ids = list(approval_ids)
    if not ids:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(_VOTES, [ids])
        return dict(cursor.fetchall())


def _build_past_decision(approval: Approval, stored_votes: str | None) -> PastDecision:
    """Verify a row and its votes, and return it as plain data."""
    tampered, outcome = verification.find_fault(approval), getattr(approval, "outcome", None)
    voters: tuple[votes.Cast, ...] = ()
    try:
        voters = votes.read(approval, stored_votes)
        if (
            tampered is None
            and approval.status == Approval.Status.APPROVED
            and approval.allowance is None
        ):
            voters = votes.check_counted(approval, statements.read(approval), voters)
    except (NotConfirmed, KeyMissing) as exc:
        tampered = tampered or str(exc)
    return PastDecision(
        stored=approval,
        reader=None,
        tampered=tampered,
        outcome=outcome and outcome.outcome,
        position=outcome and outcome.position,
        voters=voters,
        edits=() if tampered else _list_edits(approval),
    )


def _list_edits(approval: Approval) -> tuple[argument_changes.ArgumentChange, ...]:
    """Return what an approval with changes changed. Secret and held values are masked."""
    if approval.edited is None or verification.is_erased(approval):
        return ()
    texts = [json.loads(text) for text in (approval.args, approval.edited)]
    redacted = (sealing.redact_args(approval.tool, args) for args in texts)
    before, after = (sealing.open_secret_args(approval.tool, args) for args in texts)
    masked = frozenset.intersection(
        *(sealing.list_secret_args(approval.tool, args) for args in texts)
    )
    of_masked = [
        argument_changes.ArgumentChange(
            path=name,
            before=sealing.REDACTED,
            after=sealing.REDACTED,
            was_given=True,
            is_given=True,
        )
        # A held one may change too: each edit seals it anew.
        for name in sorted(masked & before.keys())
        if before[name] != after[name]
    ]
    return (*argument_changes.list_changes(*redacted), *of_masked)


def read_evidence(approval: approval_views.ApprovalView) -> dict[str, Any]:
    """Return the facts of a verified, signed decision, and what an auditor needs to verify it. Raises KeyMissing.

    The signed text has the digest of the request, which covers its arguments and its first deadline, and the digests of
    the votes. Each extension of the deadline is signed for itself.
    """
    row = approval.stored
    signature = signatures.Signature(hex=statements.decode_signature(row), key_id=str(row.key_id))
    return {
        "request": {name: getattr(approval, name) for name in _FACTS},
        "digest": approval.digest,
        **_build_signed_fields(statements.restore_signed_text(row), signature),
        "extensions": [
            _build_signed_fields(*signed) for signed in statements.list_extension_texts(row)
        ],
    }


def _build_signed_fields(text: str, signature: signatures.Signature) -> dict[str, str]:
    return {
        "signed_bytes": signatures.label_text(purposes.DECISIONS, text).decode(),
        "algorithm": "Ed25519",
        "signature": signature.hex,
        "key": signature.key_id,
        "public_key": files.read_key(purposes.DECISIONS, signature.key_id).hex(),
    }
