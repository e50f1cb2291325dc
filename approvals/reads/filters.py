"""Turns the search text of the inbox into a condition on requests.

Every word must occur in the sentence, the path or the requester. `risk:high`, `kind:question`, `agent:…`, `tool:…` and
`by:…` search one field, `instance:…` has the id of the agent outside that asks, `next:…` the step that follows if no
person decides, `due:1h` the deadline, `older:1d` and `newer:1d` the age. `claimed:me`,
`claimed:yes`, `claimed:no` and `handed:me` ask who looks at a request. Quotes keep words together.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, tzinfo
from typing import Any
from uuid import UUID

from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import BooleanField, Exists, F, Func, OuterRef, Q, QuerySet, TextField
from django.db.models.functions import Cast
from django.db.models.lookups import IContains
from django.utils import timezone

from approvals.models import Approval, ApprovalClaim, Handover
from approvals.reads.approval_views import ApprovalView
from approvals.rules.policy import ESCALATE, OnExpiry
from runtime.core.documents import external_call
from runtime.core.values.enums import GateKind, Risk
from runtime.core.values.verdicts import IN_HISTORY
from runtime.errors import InvalidInput
from runtime.ports.approvals import CallOutcome
from runtime.reads.filters import read_duration, split_terms

MAX_LENGTH = 200
_NOW = Func(function="clock_timestamp")
UNDECIDABLE = "stuck"  # too few people are left to decide
STEPS = (*OnExpiry, ESCALATE, UNDECIDABLE)
_OF_PEOPLE = ("claimed", "handed")  # whose requests depend on who searches


def build_condition(text: str, person: str = "") -> Q:
    """Return the condition for a search by `person`; an empty text matches everything.

    Raises InvalidInput naming `q`.
    """
    if len(text) > MAX_LENGTH:
        raise InvalidInput("q", f"must be at most {MAX_LENGTH} characters")
    if "\0" in text:
        raise InvalidInput("q", "must not contain a null character")
    search = Q()
    for key, word in split_terms(text, OPERATORS):
        search &= _FIELDS[key](word) if key in _FIELDS else _match_person(key, word.lower(), person)
    return search


def is_short(text: str) -> bool:
    """Say whether a search finds few requests by another table: those that its person claims or was handed."""
    pairs = split_terms(text, OPERATORS)
    return any(key in _OF_PEOPLE and word.lower() == "me" for key, word in pairs)


def collect_names(items: Collection[ApprovalView]) -> dict[str, list[str]]:
    """Return the names in these rows, by the filter that takes them, to be suggested."""
    names = {
        "agent": {agent for item in items for agent in item.path[: -1 if item.call else None]},
        "tool": {item.tool for item in items if item.call},
        "by": {item.requester for item in items},
    }
    return {key: sorted(texts) for key, texts in names.items()}


class Agents(Func):
    """The path without its end, which is the tool, as text."""

    template = "((%(expressions)s - (-1))::text)"
    output_field = TextField()


_PATH: Any = Cast(F("path"), TextField())


def match_instance(word: str, field: str = "q") -> Q:
    """Return the condition for requests of an instance. Raise InvalidInput naming the field."""
    try:
        token = str(UUID(word))
    except ValueError:
        raise InvalidInput(field, "must name an instance by its id") from None
    return Q(run__agent=external_call.AGENT, run__token=token)


def _match_choice(key: str, choices: Sequence[str], word: str) -> Q:
    if word.lower() not in choices:
        raise InvalidInput("q", f"must name one of the {key}s {', '.join(choices)} after {key}:")
    return Q(**{key: word.lower()})


def _match_person(key: str, word: str, person: str) -> Q:
    claims = ApprovalClaim.objects.filter(until__gt=_NOW)
    match key, word:
        case "claimed", "me":
            return _match_rows(claims.filter(person=person))
        case "claimed", "yes":
            return Q(Exists(claims.filter(approval=OuterRef("pk"))))
        case "claimed", "no":
            return ~Q(Exists(claims.filter(approval=OuterRef("pk"))))
        case "handed", "me":
            return _match_rows(Handover.objects.filter(person=person))
    words = "me, yes or no" if key == "claimed" else "me"
    raise InvalidInput("q", f"must have {words} after {key}:")


def _match_rows(rows: QuerySet[Any]) -> Q:
    """Return the condition for the requests of these rows. They are few, so they are read first."""
    ids = ArraySubquery(rows.values("approval_id"))
    return Q(
        Func(
            F("pk"),
            ids,
            arg_joiner=" = ANY(",
            template="(%(expressions)s))",
            output_field=BooleanField(),
        )
    )


def _match_next_step(word: str) -> Q:
    step = word.lower()
    if step not in STEPS:
        raise InvalidInput("q", f"must name one of the steps {', '.join(STEPS)} after next:")
    return Q(undecidable_at__isnull=False) if step == UNDECIDABLE else Q(next_step=step)


_FIELDS: Mapping[str, Callable[[str], Q]] = {
    "": lambda word: (
        Q(sentence__icontains=word) | Q(requester__icontains=word) | Q(IContains(_PATH, word))
    ),
    "risk": lambda word: _match_choice("risk", [*Risk], word),
    "kind": lambda word: _match_choice("kind", [*GateKind], word),
    "agent": lambda word: Q(IContains(Agents(F("path")), word)),
    "tool": lambda word: Q(tool__icontains=word),
    "by": lambda word: Q(requester__icontains=word),
    "instance": match_instance,
    "next": _match_next_step,
    "due": lambda word: Q(expires_at__lt=timezone.now() + read_duration(word, "due")),
    "older": lambda word: Q(created_at__lte=timezone.now() - read_duration(word, "older")),
    "newer": lambda word: Q(created_at__gt=timezone.now() - read_duration(word, "newer")),
}
OPERATORS = (*_FIELDS, *_OF_PEOPLE)

MAX_NAME = 200
VERDICTS = (
    *(str(status) for status in Approval.Status if status != Approval.Status.PENDING),
    *IN_HISTORY.values(),
)
CHOICES = {
    "risk": tuple(map(str, Risk)),
    "verdict": VERDICTS,
    "outcome": tuple(map(str, CallOutcome)),
}
NAMES = ("person", "by", "agent", "tool")
KEYS = (*NAMES, "instance", *CHOICES, "since", "until")


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionFilter:
    """The decisions to list; an empty filter lists all.

    `person` decided or voted, or a deputy did so in their place; `by` started the run. `agent` proposed the call or is
    the agent of the run, `instance` is the id of the agent outside that asked. `since` is inclusive, `until` exclusive.
    `texts` holds the filters as they were written, without the words.
    """

    person: str = ""
    by: str = ""
    agent: str = ""
    tool: str = ""
    instance: str = ""
    risk: str = ""
    verdict: str = ""
    outcome: str = ""
    since: datetime | None = None
    until: datetime | None = None
    words: str = ""
    texts: Mapping[str, str] = field(default_factory=dict)


def read_criteria(parameters: Mapping[str, str], zone: tzinfo) -> DecisionFilter:
    """Read the parameters KEYS and `q`; empty ones filter nothing. A day is one of `zone`.

    Raises InvalidInput naming the parameter, or `q` for a filter inside the search text.
    """
    values = {key: text.strip() for key, text in parameters.items() if key in KEYS and text.strip()}
    words = []
    search = parameters.get("q", "")
    if len(search) > MAX_LENGTH:
        raise InvalidInput("q", f"must be at most {MAX_LENGTH} characters")
    for key, text in split_terms(search, KEYS):
        if not key:
            words.append(text)
        elif key in values:
            raise InvalidInput("q", f"has {key}: more than once, or beside the field of that name")
        elif text:
            values[key] = text
    fields: dict[str, Any] = {key: _read_value(key, text, zone) for key, text in values.items()}
    inbox_search = " ".join(f'"{word}"' if " " in word or ":" in word else word for word in words)
    build_condition(inbox_search)
    return DecisionFilter(words=inbox_search, texts=values, **fields)


def compute_midnight(day: date, zone: tzinfo) -> datetime:
    """Return the start of a day in a zone."""
    return datetime.combine(day, time.min, tzinfo=zone)


def _read_value(key: str, text: str, zone: tzinfo) -> str | datetime:
    """Read the value of a filter. A time is in `zone` if it names no other."""
    if key in CHOICES:
        if text.lower() not in CHOICES[key]:
            raise InvalidInput(key, f"must be one of {', '.join(CHOICES[key])}")
        return text.lower()
    if key in NAMES:
        if len(text) > MAX_NAME:
            raise InvalidInput(key, f"must be at most {MAX_NAME} characters")
        if "\0" in text:
            raise InvalidInput(key, "must not contain a null character")
        return text
    if key == "instance":
        match_instance(text, key)
        return text
    try:
        if len(text) == len("2026-11-24"):
            return compute_midnight(date.fromisoformat(text) + timedelta(days=key == "until"), zone)
        at = datetime.fromisoformat(text)
        return at if at.tzinfo else at.replace(tzinfo=zone)
    except (ValueError, OverflowError):
        raise InvalidInput(
            key, "must be a day as 2026-11-24, or a time as 2026-11-24T18:30"
        ) from None
