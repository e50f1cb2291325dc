"""Turns the search text of the inbox into a condition on requests.

Every word must occur in the sentence, the path or the requester. `risk:high`, `kind:question`, `agent:…`, `tool:…` and
`by:…` search one field, `next:…` the step that follows if no person decides, `due:1h` the deadline. `claimed:me`,
`claimed:yes`, `claimed:no` and `handed:me` ask who looks at a request. Quotes keep words together.
"""

from collections.abc import Callable, Mapping
from typing import Any

from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import BooleanField, Exists, F, Func, OuterRef, Q, QuerySet, TextField
from django.db.models.functions import Cast
from django.db.models.lookups import IContains
from django.utils import timezone

from approvals.models import ApprovalClaim, Handover
from approvals.rules.escalation import ESCALATE
from approvals.rules.policy import OnExpiry
from runtime.core.values.enums import GateKind, Risk
from runtime.errors import InvalidInput
from runtime.reads.filters import duration, terms

MAX_LENGTH = 200
_NOW = Func(function="clock_timestamp")
UNDECIDABLE = "stuck"  # too few people are left to decide
STEPS = (*OnExpiry, ESCALATE, UNDECIDABLE)


def condition(text: str, person: str = "") -> Q:
    """Return the condition for a search by `person`; an empty text matches everything.

    Raises InvalidInput naming `q`.
    """
    if len(text) > MAX_LENGTH:
        raise InvalidInput("q", f"must be at most {MAX_LENGTH} characters")
    if "\0" in text:
        raise InvalidInput("q", "must not contain a null character")
    found = Q()
    for place, wanted in terms(text, (*_PLACES, *_OF_PEOPLE)):
        if place in _OF_PEOPLE:
            found &= _OF_PEOPLE[place](wanted.lower(), person)
        else:
            found &= _PLACES[place](wanted)
    return found


def is_short(text: str) -> bool:
    """Say whether a search finds few requests by another table: those that its person claims or was handed."""
    found = terms(text, (*_PLACES, *_OF_PEOPLE))
    return any(place in _OF_PEOPLE and wanted.lower() == "me" for place, wanted in found)


class Agents(Func):
    """The path without its end, which is the tool, as text."""

    template = "((%(expressions)s - (-1))::text)"
    output_field = TextField()


def _anywhere(wanted: str) -> Q:
    path: Any = Cast(F("path"), TextField())
    return (
        Q(sentence__icontains=wanted) | Q(requester__icontains=wanted) | Q(IContains(path, wanted))
    )


def _risk(wanted: str) -> Q:
    if wanted.lower() not in list(Risk):
        raise InvalidInput("q", f"must name one of the risks {', '.join(Risk)} after risk:")
    return Q(risk=wanted.lower())


def _kind(wanted: str) -> Q:
    if wanted.lower() not in list(GateKind):
        raise InvalidInput("q", f"must name one of the kinds {', '.join(GateKind)} after kind:")
    return Q(kind=wanted.lower())


def _claimed(wanted: str, person: str) -> Q:
    held = ApprovalClaim.objects.filter(approval=OuterRef("pk"), until__gt=_NOW)
    match wanted:
        case "me":
            return _among(ApprovalClaim.objects.filter(person=person, until__gt=_NOW))
        case "yes":
            return Q(Exists(held))
        case "no":
            return ~Q(Exists(held))
    raise InvalidInput("q", "must have me, yes or no after claimed:")


def _handed(wanted: str, person: str) -> Q:
    if wanted != "me":
        raise InvalidInput("q", "must have me after handed:")
    return _among(Handover.objects.filter(person=person))


def _among(rows: QuerySet[Any]) -> Q:
    """Return the condition for the requests of these rows. They are few, so they are read first."""
    those = ArraySubquery(rows.values("approval_id"))
    return Q(
        Func(
            F("pk"),
            those,
            arg_joiner=" = ANY(",
            template="(%(expressions)s))",
            output_field=BooleanField(),
        )
    )


_OF_PEOPLE: Mapping[str, Callable[[str, str], Q]] = {"claimed": _claimed, "handed": _handed}


def _next(wanted: str) -> Q:
    step = wanted.lower()
    if step not in STEPS:
        raise InvalidInput("q", f"must name one of the steps {', '.join(STEPS)} after next:")
    return Q(undecidable_at__isnull=False) if step == UNDECIDABLE else Q(next_step=step)


def _due(wanted: str) -> Q:
    return Q(expires_at__lt=timezone.now() + duration(wanted, "due"))


_PLACES: Mapping[str, Callable[[str], Q]] = {
    "": _anywhere,
    "risk": _risk,
    "kind": _kind,
    "agent": lambda wanted: Q(IContains(Agents(F("path")), wanted)),
    "tool": lambda wanted: Q(tool__icontains=wanted),
    "by": lambda wanted: Q(requester__icontains=wanted),
    "next": _next,
    "due": _due,
}
