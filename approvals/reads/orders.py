"""The order of the pending requests in the inbox: by deadline, age or risk, within groups, page by page."""

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from django.db.models import Case, F, IntegerField, Q, QuerySet, Value, When
from django.db.models.functions import Coalesce
from django.utils import timezone

from approvals.models import Approval
from approvals.reads.approval_views import ApprovalView
from approvals.reads.filters import Agents
from runtime.core.values.enums import Risk
from runtime.errors import InvalidInput
from runtime.reads.labels import format_agent_title

_RANKS = {Risk.HIGH: 0, Risk.MEDIUM: 1, Risk.LOW: 2}
_DUE = (
    ("Due within 10 minutes", timedelta(minutes=10)),
    ("Due within a day", timedelta(days=1)),
    ("Due in more than a day", timedelta.max),
)
_NEVER = "No due date"
_NO_TOOL = "Not about a tool"


class Sort(StrEnum):
    """The order of the rows."""

    DEADLINE = "deadline"  # the next deadline first, without a deadline last
    NEXT = "next"  # the next escalation or deadline first
    AGE = "age"  # the oldest first
    RISK = "risk"  # the highest first, then by deadline


class Grouping(StrEnum):
    """The headings between the rows."""

    DEADLINE = "deadline"
    RISK = "risk"
    AGENT = "agent"  # agents on the way to the call
    KIND = "kind"  # calls of the same tool


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadedRows:
    """Rows under one heading."""

    title: str
    items: tuple[ApprovalView, ...]


@dataclass(frozen=True, slots=True)
class _Key:
    """A part of the order: a column or an expression, and its value in a request."""

    name: str
    value: Callable[[ApprovalView], Any]
    parse: Callable[[Any], Any]
    expression: Any = None
    may_be_null: bool = False

    def equal(self, value: Any) -> Q:
        return Q(**{f"{self.name}__isnull": True}) if value is None else Q(**{self.name: value})

    def after(self, value: Any) -> Q:
        if value is None:
            return Q(pk__in=[])  # nulls are last
        condition = Q(**{f"{self.name}__gt": value})
        return condition | Q(**{f"{self.name}__isnull": True}) if self.may_be_null else condition


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A sort within a grouping."""

    sort: Sort = Sort.DEADLINE
    group: Grouping = Grouping.DEADLINE

    @property
    def is_by_deadline(self) -> bool:
        """Whether the index by deadline has this order, so that any number of rows can be walked in it."""
        return (self.sort, self.group) == (Sort.DEADLINE, Grouping.DEADLINE)

    def sort_rows(self, rows: QuerySet[Approval], *, backwards: bool = False) -> QuerySet[Approval]:
        """Put the rows in order, or in the reverse order."""
        keys = self._keys()
        rows = rows.alias(**{key.name: key.expression for key in keys if key.expression})
        if backwards:
            return rows.order_by(*(F(k.name).desc(nulls_first=k.may_be_null or None) for k in keys))
        return rows.order_by(*(F(k.name).asc(nulls_last=k.may_be_null or None) for k in keys))

    def after(self, approval: ApprovalView) -> Q:
        """Return the condition for the rows after this request."""
        return self._after([key.value(approval) for key in self._keys()])

    def select_after_cursor(self, cursor: str) -> Q:
        """Return the condition for the rows after a cursor. Raise InvalidInput naming `cursor`."""
        keys = self._keys()
        try:
            text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
            parts = json.loads(text)
            values = [key.parse(value) for key, value in zip(keys, parts, strict=True)]
        except (ValueError, TypeError, binascii.Error, RecursionError) as exc:
            raise InvalidInput("cursor", "is not a cursor of this list") from exc
        return self._after(values)

    def encode_cursor(self, approval: ApprovalView) -> str:
        """Encode the place of a request in this order."""
        values = [key.value(approval) for key in self._keys()]
        text = json.dumps([v.isoformat() if isinstance(v, datetime) else v for v in values])
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    def groups(self, items: Sequence[ApprovalView]) -> list[HeadedRows]:
        """Put the rows of a page under headings, which follow the order of the rows."""
        now = timezone.now()
        rows_by_title: dict[str, list[ApprovalView]] = {}
        for approval in items:
            match self.group:
                case Grouping.RISK:
                    title = f"{approval.risk.capitalize()} risk"
                case Grouping.AGENT:
                    agents = approval.path[:-1] if approval.call else approval.path
                    title = " › ".join(map(format_agent_title, agents))
                case Grouping.KIND:
                    title = format_agent_title(approval.tool) if approval.tool else _NO_TOOL
                case _:
                    bucket = _compute_bucket(approval.expires_at, now)
                    title = _NEVER if bucket == len(_DUE) else _DUE[bucket][0]
            rows_by_title.setdefault(title, []).append(approval)
        return [
            HeadedRows(title=title, items=tuple(inside)) for title, inside in rows_by_title.items()
        ]

    def _keys(self) -> list[_Key]:
        keys = []
        match self.group:
            case Grouping.DEADLINE if self.sort is not Sort.DEADLINE:
                # That of the deadline's heading, as of now.
                now = timezone.now()
                bounds = [
                    When(expires_at__lte=now + bound, then=Value(index))
                    for index, (_, bound) in enumerate(_DUE[:-1])
                ]
                never = When(expires_at__isnull=True, then=Value(len(_DUE)))
                last = Value(len(_DUE) - 1)
                due = Case(never, *bounds, default=last, output_field=IntegerField())
                keys.append(
                    _Key(
                        "due", lambda row: _compute_bucket(row.expires_at, now), _decode_number, due
                    )
                )
            case Grouping.RISK:
                keys.append(_RISK)
            case Grouping.AGENT:
                keys.append(_AGENTS)
            case Grouping.KIND:
                keys.append(_KIND)
            case _:
                pass
        if self.sort is Sort.RISK and self.group is not Grouping.RISK:
            keys.append(_RISK)
        if self.sort is Sort.NEXT:
            keys.append(_NEXT)
        elif self.sort is not Sort.AGE:
            keys.append(_DEADLINE)
        return [*keys, _CREATED, _ID]

    def _after(self, values: Sequence[Any]) -> Q:
        condition = Q(pk__in=[])
        for key, value in reversed(list(zip(self._keys(), values, strict=True))):
            condition = key.after(value) | (key.equal(value) & condition)
        return condition


def _compute_bucket(expires_at: datetime | None, now: datetime) -> int:
    if expires_at is None:
        return len(_DUE)
    remaining = expires_at - now
    return next(index for index, (_, bound) in enumerate(_DUE) if remaining <= bound)


def _decode_moment(value: Any) -> datetime:
    at = datetime.fromisoformat(value)
    if at.tzinfo is None:
        raise ValueError(value)
    return at


def _decode_number(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= len(_DUE):
        raise ValueError(value)
    return value


def _encode_value(value: Any) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise ValueError(value)
    value.encode()  # a lone surrogate is a ValueError
    return value


_RISK = _Key(
    "rank",
    lambda approval: _RANKS[Risk(approval.risk)],
    _decode_number,
    Case(
        *(When(risk=risk, then=Value(rank)) for risk, rank in _RANKS.items()),
        output_field=IntegerField(),
    ),
)
_AGENTS = _Key(
    "agents",
    lambda approval: json.dumps(approval.path[:-1], ensure_ascii=False),  # as Postgres writes it
    _encode_value,
    Agents(F("path")),
)
_KIND = _Key("tool", lambda approval: approval.tool, _encode_value)
_DEADLINE = _Key(
    "expires_at",
    lambda approval: approval.expires_at,
    lambda value: None if value is None else _decode_moment(value),
    may_be_null=True,
)
_NEXT = _Key(
    "step_at",
    lambda approval: approval.next_at or approval.expires_at,
    lambda value: None if value is None else _decode_moment(value),
    Coalesce("next_at", "expires_at"),
    may_be_null=True,
)
_CREATED = _Key("created_at", lambda approval: approval.created_at, _decode_moment)
_ID = _Key("id", lambda approval: str(approval.id), lambda value: UUID(_encode_value(value)))
