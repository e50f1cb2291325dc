"""Reads the approvals that an actor may read, as plain data, in a few queries."""

import base64
import binascii
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, get_type_hints
from uuid import UUID

from django.db.models import Q
from django.utils import timezone

from approvals.errors import NotFound, TamperedWith
from approvals.models import Approval
from approvals.requests import confirmation, snapshot, verification
from approvals.rights import approval_rights as request_rules
from approvals.rights import principals
from approvals.rules import policy
from approvals.signed import rows as signed_rows
from approvals.signed import statements
from runtime.core.run.continuation import merge_people
from runtime.core.run.events import GateExtended
from runtime.core.values.enums import GateKind
from runtime.core.values.verdicts import VERDICTS, VERDICTS_AT, VerdictRule, select_verdict_rule
from runtime.errors import Forbidden, InvalidInput
from runtime.keyring import sealing
from runtime.ports.access import Actor
from runtime.ports.approvals import NotConfirmed
from runtime.reads.run_rows import Page

ANY = "any"  # of every kind
STATUSES = tuple(Approval.Status.values)

# The columns that a view has: all but those that only verify others, or that only lists use.
COLUMNS = tuple(
    name for name in signed_rows.list_columns(Approval) if name not in Approval.INTERNAL
)

LIMIT = 50
MAX_LIMIT = 200
_ATTRIBUTES = {
    *COLUMNS,
    *(n for n, member in vars(Approval).items() if isinstance(member, property)),
}


@dataclass(frozen=True, kw_only=True)
class ApprovalView:
    """An approval as its `reader` sees it. Its attributes are the columns of `stored`, except those defined here.

    `args`, the schemas and `preview`, what the worker found out about the call (see ReviewSnapshot), are JSON values.
    `edited` are the arguments of an approval with changes, `edited_preview` what the call does with them as its
    approver saw it, else None. `result_schema` is the schema of a result to report in doubt or to give instead of the
    call, None if the tool has none. `tampered` names the first value of the row that does not verify, None if all do.
    Such a row is shown as stored, cannot be decided, and its `args` may be text. `revises` is the gate of the approval
    that this one revises as number `revision`; a first proposal has None and 1. `allowance` passed the call, as its use
    number `allowance_use`.
    """

    stored: Approval
    reader: principals.Principal | None
    tampered: str | None = None

    def __getattr__(self, name: str) -> Any:
        """Return a column or a property of the row; a JSON column as its value."""
        if name not in _ATTRIBUTES:
            raise AttributeError(f"an approval has no {name}")
        value = getattr(self.stored, name)
        if name in _READERS:
            value = _READERS[name](value)
        self.__dict__[name] = value  # found there from now on
        return value

    @property
    def is_signed(self) -> bool:
        """Whether a person signed the decision. Deadlines and cancellations are not signed, an allowance only once."""
        return self.stored.statement is not None and self.stored.allowance is None

    @property
    def run(self) -> UUID:
        """The id of the run."""
        return self.stored.run_id

    @property
    def digest(self) -> str:
        """The digest that a decision must name."""
        return self.stored.approval_digest

    @cached_property
    def sees_held(self) -> bool:
        """Whether this reader may read held arguments."""
        return not self.tampered and request_rules.may_see_held(self.reader, self.stored)

    @cached_property
    def holds(self) -> bool:
        """Whether reviewers alone may read its arguments."""
        return bool(sealing.list_held_args(self.stored.tool, _parse(self.stored.args)))

    @cached_property
    def args(self) -> Any:
        """The arguments, with those that this reader may not see redacted."""
        return self._read_args(self.stored.args)

    @cached_property
    def edited(self) -> Any:
        """The arguments of an approval with changes."""
        return None if self.stored.edited is None else self._read_args(self.stored.edited)

    @property
    def sentence(self) -> str:
        """The sentence, with a warning if the row does not verify."""
        return f"Tampered with: {self.stored.sentence}" if self.tampered else self.stored.sentence

    @property
    def origin(self) -> tuple[str, ...]:
        """The people in the run's origin, with the requester: they cannot decide."""
        lists = (
            signed_rows.select_texts(names) for names in (self.stored.origin, self.stored.excluded)
        )
        return merge_people([self.stored.requester], *lists)

    @property
    def removed_at(self) -> datetime | None:
        """When retention removed the arguments and the sentence."""
        return self.stored.removed_at if verification.is_erased(self.stored) else None

    @cached_property
    def confirm(self) -> str | None:
        """The name that an approval must repeat; None without a second step, and once it is closed."""
        return confirmation.find_required_name(self.stored) if self.is_pending else None

    @cached_property
    def denial(self) -> Forbidden | None:
        """Why this reader may not decide, at any status; None if they may.

        Its code is `scope`, `requester`, `origin`, `not_eligible`, `given_by_origin`, `cooling_off` or `tampered`.
        """
        if self.tampered:
            return Forbidden("tampered", TamperedWith(self.tampered).detail)
        return request_rules.find_denial(self.reader, self.stored, at=timezone.now())

    @property
    def may_extend(self) -> bool:
        """Whether this reader may extend its deadline, see `decisions.teamwork`."""
        if not self.is_pending or self.stored.expires_at is None or self.tampered:
            return False
        is_admin = self.reader is not None and self.reader.has(principals.Scope.ADMIN)
        return (is_admin or self.denial is None) and not self.stored.is_external

    @cached_property
    def extensions(self) -> tuple[GateExtended, ...]:
        """The extensions of its deadline, the first one first."""
        return () if self.tampered else statements.read_extensions(self.stored)

    @cached_property
    def acts_for(self) -> str | None:
        """The absent person in whose place this reader decides; None for themselves."""
        if self.tampered:
            return None
        return request_rules.find_absentee(self.reader, self.stored, timezone.now())

    @property
    def is_pending(self) -> bool:
        """Whether it waits for a decision."""
        return self.stored.status == Approval.Status.PENDING

    @property
    def words(self) -> VerdictRule | None:
        """The row of its verdict, with the words at its gate; None if it is open, expired or cancelled.

        Without a statement it is that of a plain decision.
        """
        if self.stored.kind not in VERDICTS_AT:
            return None  # the row was tampered with
        kind, statement = GateKind(self.stored.kind), self.stored.statement or ""
        possible = [v for v in VERDICTS_AT[kind] if VERDICTS[v].status == self.stored.status]
        stated = (v for v in possible if statements.format_verdict(v) in statement)
        verdict = next(stated, next(iter(possible), None))
        return None if verdict is None else select_verdict_rule(kind, verdict)

    @property
    def changes_requested(self) -> bool:
        """Whether it was denied with a request for changes."""
        return self.words is not None and self.words.asks_again

    @cached_property
    def demands(self) -> policy.Demands | None:
        """The demands of the policy's rule; None under the default policy."""
        try:
            return policy.decode_demands(self.stored.rule)
        except (ValueError, KeyError, TypeError):  # the row was tampered with
            return None

    @property
    def quorum(self) -> int:
        """How many people must approve."""
        return self.demands.quorum if self.demands else 1

    @property
    def authenticated(self) -> dict[str, str] | None:
        """How the person who decided proved in the browser who they are, by their statement."""
        stored = _parse(self.stored.statement) if self.stored.statement else None
        return stored.get("authenticated") if isinstance(stored, dict) else None

    @property
    def plan_item(self) -> dict[str, Any] | None:
        """The item of the agent's plan to which the call belongs, as it was when the gate opened."""
        plan = self._in_preview("plan")
        return plan if isinstance(plan, dict) else None

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings of the tool's preview of the call."""
        preview = self._in_preview("shown")
        return (
            tuple(signed_rows.select_texts(preview.get("warnings")))
            if isinstance(preview, dict)
            else ()
        )

    @property
    def changed_in_fork_by(self) -> str:
        """The person who gave the arguments in a fork, empty if the model did."""
        person = self._in_preview("changed_by")
        return person if isinstance(person, str) else ""

    @property
    def reviewer_may_write(self) -> bool:
        """Whether the rule lets people who may decide this approval write to its run."""
        return request_rules.may_write_by_rule(self.stored.kind, self.demands)

    @property
    def next_step(self) -> policy.NextStep | None:
        """The step that follows if no person decides; None without a deadline, and for a closed request."""
        if not self.is_pending:
            return None
        return policy.find_next_step(
            self.demands, self.stored.opened_until, timezone.now(), self.stored.expires_at
        )

    @property
    def on_expiry(self) -> policy.OnExpiry | None:
        """The consequence of the last deadline, None without one."""
        if self.stored.expires_at is None:
            return None
        return self.demands.on_expiry if self.demands else policy.OnExpiry.DENY

    @property
    def rule(self) -> str | None:
        """The name of the policy's rule, None under the default policy."""
        return self.demands.rule if self.demands else None

    def _read_args(self, text: str) -> Any:
        read_args = sealing.open_args_for_reviewers if self.sees_held else sealing.redact_args
        return read_args(self.stored.tool, _parse(text))

    def _in_preview(self, name: str) -> Any:
        return self.preview.get(name) if isinstance(self.preview, dict) else None


def _read_schema(digest: str | None) -> Any:
    try:
        return None if digest is None else _parse(snapshot.read_schema_text(digest))
    except NotConfirmed:
        return None


def _parse(text: str | None) -> Any:
    """Parse JSON; return the text itself if it is not JSON, as in a row that was tampered with."""
    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return text


def _read_names(names: object) -> tuple[str, ...]:
    return tuple(signed_rows.select_texts(names))


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "schema": _read_schema,
    "result_schema": _read_schema,
    "preview": _parse,
    "edited_preview": _parse,
    "path": _read_names,
    "voted": _read_names,
}


def derive_types(names: Iterable[str]) -> dict[str, Any]:
    """Return the type of each of these attributes of ApprovalView."""
    added = {
        name: get_type_hints(member.fget if isinstance(member, property) else member.func)["return"]
        for name, member in vars(ApprovalView).items()
        if isinstance(member, property | cached_property)
    }
    added |= get_type_hints(ApprovalView)
    types = dict[str, Any]()
    for name in names:
        if name in added:
            types[name] = added[name]
            continue
        column = Approval._meta.get_field(name)  # noqa: SLF001 - its documented API
        kind = column.get_internal_type()
        if name in _READERS:
            types[name] = list[str] if kind == "JSONField" else Any
        else:
            types[name] = _TYPES[kind] | None if column.null else _TYPES[kind]
    return types


_TYPES: Mapping[str, Any] = {
    "UUIDField": UUID,
    "TextField": str,
    "DateTimeField": datetime,
    "IntegerField": int,
    "SmallIntegerField": int,
}


def list_approvals(
    actor: Actor,
    *,
    kind: str = ANY,
    status: str | None = None,
    run: UUID | None = None,
    limit: int = LIMIT,
    cursor: str | None = None,
) -> Page[ApprovalView]:
    """List the requests of one kind, or of any, that this actor may read, oldest first.

    Raises InvalidInput naming `kind`, `status`, `limit` or `cursor`.
    """
    principal = principals.find_principal(actor)
    kinds = (ANY, *GateKind)
    if kind not in kinds:
        raise InvalidInput("kind", f"must be one of {', '.join(kinds)}")
    rows = Approval.objects.filter(request_rules.match_readable_requests(principal))
    if kind != ANY:
        rows = rows.filter(kind=kind)
    if status is not None:
        if status not in STATUSES:
            raise InvalidInput("status", f"must be one of {', '.join(STATUSES)}")
        rows = rows.filter(status=status)
    # An id begins with the time. Only the index by time has the pending ones apart.
    waits = status == Approval.Status.PENDING
    if run is not None:
        rows = rows.filter(run=run)
    if not 1 <= limit <= MAX_LIMIT:
        raise InvalidInput("limit", f"must be from 1 to {MAX_LIMIT}")
    if cursor is not None:
        _, at, last_id = decode_cursor(cursor, parts=2)
        after = Q(id__gt=last_id)
        if waits:  # the plain bound beside the pair lets Postgres walk the index from there
            after = Q(after | Q(created_at__gt=at), created_at__gte=at)
        rows = rows.filter(after)
    selected = list(rows.order_by(*["created_at"] * waits, "id")[: limit + 1])
    items = tuple(to_view(approval, principal) for approval in selected[:limit])
    last = encode_cursor(items[-1].created_at, items[-1].id) if len(selected) > limit else None
    return Page(items=items, next=last)


def read_approval(approval_id: UUID, *, actor: Actor) -> ApprovalView:
    """Return one approval. Raises NotFound if there is none or the actor may not read it."""
    return read_approval_for(approval_id, principals.find_principal(actor))


def read_approval_for(approval_id: UUID, principal: principals.Principal | None) -> ApprovalView:
    """Return one approval to a reader with these rights. Raises NotFound as `approval`."""
    return to_view(require_readable(approval_id, principal), principal)


def list_approvals_by_id(ids: Collection[UUID], *, actor: Actor) -> tuple[ApprovalView, ...]:
    """Return those of these requests that the actor may read, in the order of `ids`, in one query."""
    principal = principals.find_principal(actor)
    rows = Approval.objects.filter(request_rules.match_readable_requests(principal), pk__in=ids)
    by_id = {approval.id: to_view(approval, principal) for approval in rows}
    return tuple(by_id[approval_id] for approval_id in ids if approval_id in by_id)


def require_readable(approval_id: UUID, principal: principals.Principal | None) -> Approval:
    """Return the row if this principal may read it. Raises NotFound."""
    approval = Approval.objects.filter(
        request_rules.match_readable_requests(principal), pk=approval_id
    ).first()
    if approval is None:
        raise NotFound
    return approval


def to_view(approval: Approval, reader: principals.Principal | None) -> ApprovalView:
    """Verify a row, and return it as this reader sees it."""
    return ApprovalView(stored=approval, reader=reader, tampered=verification.find_fault(approval))


CursorValues = tuple[datetime | None, datetime, UUID]


def encode_cursor(*parts: datetime | UUID | None) -> str:
    """Encode deadline, time and id of the last row of a page, or time and id."""
    words = [part.isoformat() if isinstance(part, datetime) else str(part or "") for part in parts]
    return base64.urlsafe_b64encode("|".join(words).encode()).decode().rstrip("=")


def decode_cursor(cursor: str, *, parts: int) -> CursorValues:
    """Return deadline, time and id; the deadline is None if it is empty or not among the parts.

    Raise InvalidInput naming `cursor`.
    """
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
        *deadlines, moment, last = text.split("|")
        (deadline,) = deadlines if parts == 3 else [*deadlines, ""]
        until = datetime.fromisoformat(deadline) if deadline else None
        at, row = datetime.fromisoformat(moment), UUID(last)
    except (ValueError, binascii.Error) as exc:
        raise InvalidInput("cursor", "is not a cursor of this list") from exc
    if at.tzinfo is None or (until is not None and until.tzinfo is None):
        raise InvalidInput("cursor", "is not a cursor of this list")
    return until, at, row
