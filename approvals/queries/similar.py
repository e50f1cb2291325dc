"""Compares the arguments of an approval with the newest earlier approval of the same tool by the same agents.

Only approvals that the reader may read are used. Stored values are compared, secrets are not.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import partial
from time import monotonic
from typing import Any
from uuid import UUID

from django.utils import timezone

from approvals.models import Request
from approvals.permissions import request_rules
from approvals.permissions.principals import Principal
from approvals.queries.requests import Approval
from approvals.queries.word_diff import blocks, words
from approvals.requests import verification
from runtime.core.enums import GateKind
from runtime.keyring import sealing

MAX_COMPARED = (
    4_000  # characters; longer texts are shown whole, without a comparison of their words
)


class Difference(StrEnum):
    """How an argument differs from the earlier one."""

    SAME = "same"
    CHANGED = "changed"
    ADDED = "added"
    LEFT_OUT = "left out"
    HIDDEN = "hidden"  # a secret, which is not compared


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of a text, and whether it differs."""

    text: str
    changed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One argument in both approvals. `was` and `now` are its text in parts, empty if the argument is missing.

    `in_words` is False for changed texts whose words were not compared.
    """

    name: str
    difference: Difference
    was: tuple[Part, ...]
    now: tuple[Part, ...]
    in_words: bool = True

    @property
    def text(self) -> str:
        """Return the present text."""
        return "".join(part.text for part in self.now)

    @property
    def spaces(self) -> str:
        """Describe a change in the number of spaces at the start and end, because spaces are invisible."""
        if self.difference not in (Difference.CHANGED, Difference.ADDED):
            return ""
        was, now = _outer("".join(part.text for part in self.was)), _outer(self.text)
        said = [
            f"It {verb} with {_counted(after)}{f', before with {_counted(before)}' if self.was else ''}."
            for verb, before, after in zip(("begins", "ends"), was, now, strict=True)
            if before != after
        ]
        return " ".join(said)


@dataclass(frozen=True, slots=True, kw_only=True)
class Similar:
    """The newest similar approval before this one, and the comparison of each argument."""

    id: UUID
    run: UUID
    decided_by: str
    decided_at: datetime
    changes: tuple[Change, ...]

    @property
    def different(self) -> tuple[Change, ...]:
        """The arguments that differ."""
        return tuple(c for c in self.changes if c.difference is not Difference.SAME)

    @property
    def same(self) -> tuple[Change, ...]:
        """The arguments that are the same."""
        return tuple(c for c in self.changes if c.difference is Difference.SAME)


def similar(
    approval: Approval, principal: Principal | None, *, until: float | None = None
) -> Similar | None:
    """Compare with the newest similar approval that this principal may read; None if there is none.

    `until` is a time of `time.monotonic()`: after it, the words of the remaining arguments are not compared.
    """
    rows = Request.objects.filter(
        request_rules.readable_requests(principal),
        tool=approval.tool,
        path=list(approval.path),
        status=Request.Status.APPROVED,
        kind=GateKind.APPROVAL,
        removed_at=None,
        decided_at__lt=approval.decided_at or timezone.now(),
    ).exclude(pk=approval.id)
    row = rows.order_by("-decided_at").first()
    if row is None or row.decided_by is None or row.decided_at is None:
        return None
    if approval.tampered or verification.fault(row):
        return None  # the row may have arguments that no reviewer approved
    args = Request.objects.values_list("args", flat=True).get(pk=approval.id)
    return Similar(
        id=row.id,
        run=row.run_id,
        decided_by=row.decided_by,
        decided_at=row.decided_at,
        changes=tuple(
            compared(json.loads(row.args), json.loads(args), until=until, secret=_secrets(row.tool))
        ),
    )


def compared(
    was: Any,
    now: Any,
    *,
    until: float | None = None,
    secret: Callable[[Any], frozenset[str]] = lambda args: frozenset(),
) -> list[Change]:
    """Compare all arguments of both, in the order of `now`. Arguments that are no object are compared as one.

    `secret` returns the names of arguments with a sealed value.
    """
    hidden = secret(was) | secret(now)
    if not isinstance(was, dict) or not isinstance(now, dict):
        was, now = {"arguments": was}, {"arguments": now}
    names = [*now, *(name for name in was if name not in now)]
    return [
        Change(name=name, difference=Difference.HIDDEN, was=(), now=())
        if name in hidden
        else _compared(name, was, now, until)
        for name in names
    ]


def _secrets(tool: str) -> Callable[[Any], frozenset[str]]:
    return partial(sealing.secret_args, tool)


def _compared(name: str, was: dict[str, Any], now: dict[str, Any], until: float | None) -> Change:
    if name not in was:
        added = _whole(_text(now[name]))
        return Change(name=name, difference=Difference.ADDED, was=(), now=added)
    if name not in now:
        left_out = _whole(_text(was[name]))
        return Change(name=name, difference=Difference.LEFT_OUT, was=left_out, now=())
    before, after = _text(was[name]), _text(now[name])
    # Compared as JSON: 1 and true are equal in Python, but not for a tool.
    if _json(was[name]) == _json(now[name]):
        whole = (Part(text=after, changed=False),)
        return Change(name=name, difference=Difference.SAME, was=whole, now=whole)
    over = until is not None and monotonic() >= until
    parts = None if over else _parts(before, after)
    old, new = parts or (_whole(before), _whole(after))
    in_words = parts is not None
    return Change(name=name, difference=Difference.CHANGED, was=old, now=new, in_words=in_words)


def _parts(was: str, now: str) -> tuple[tuple[Part, ...], tuple[Part, ...]] | None:
    """Split both texts into equal and different words; None if that would take too long."""
    if was == now:
        return _whole(was), _whole(now)
    if max(len(was), len(now)) > MAX_COMPARED:
        return None
    old, new = words(was), words(now)
    shared = blocks(old, new)
    if shared is None:
        return None
    left, right = [], []
    a = b = 0
    for start, at, size in shared:
        left += [(old[a:start], True), (old[start : start + size], False)]
        right += [(new[b:at], True), (new[at : at + size], False)]
        a, b = start + size, at + size
    return _joined(left), _joined(right)


def _joined(pieces: list[tuple[list[str], bool]]) -> tuple[Part, ...]:
    return tuple(Part(text="".join(words), changed=changed) for words, changed in pieces if words)


def _outer(text: str) -> tuple[int, int]:
    """Count the spaces at the beginning and the end of a text."""
    return len(text) - len(text.lstrip(" ")), len(text) - len(text.rstrip(" "))


def _counted(spaces: int) -> str:
    return f"{spaces or 'no'} space{'' if spaces == 1 else 's'}"


def _whole(text: str) -> tuple[Part, ...]:
    return (Part(text=text, changed=True),)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, indent=2)
