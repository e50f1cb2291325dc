"""Compares the arguments of an approval with the newest earlier approval of the same tool by the same agents.

`approvals.queries.past_calls.comparison` orders the differences by their oddness.

Only approvals that the reader may read are used. Stored values are compared, secrets are not.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import partial
from time import monotonic
from typing import Any
from uuid import UUID

from django.db.models import Subquery
from django.utils import timezone

from approvals.models import OF_CALL, Approval
from approvals.queries.past_calls.word_diff import Block, blocks, words
from approvals.queries.requests import ApprovalView
from approvals.requests import verification
from approvals.rights import approvals
from approvals.rights.principals import Principal
from runtime.keyring import sealing

MAX_COMPARED = (
    4_000  # characters; longer texts are shown whole, without a comparison of their words
)

MAX_WORD = 100  # characters of words whose characters are compared
MIN_KEPT = 3  # equal characters, and at least half of them, by which a word counts as changed and not replaced

_Piece = tuple[list[str], bool]


class ArgumentDifference(StrEnum):
    """How an argument differs from the earlier one."""

    SAME = "same"
    CHANGED = "changed"
    ADDED = "added"
    LEFT_OUT = "left out"
    HIDDEN = "hidden"  # a secret, which is not compared


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffPart:
    """A part of a text, and whether it differs."""

    text: str
    changed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedArgument:
    """One argument in both approvals. `was` and `now` are its text in parts, empty if the argument is missing.

    `in_words` is False for changed texts whose words were not compared.
    """

    name: str
    difference: ArgumentDifference
    was: tuple[DiffPart, ...]
    now: tuple[DiffPart, ...]
    in_words: bool = True

    @property
    def text(self) -> str:
        """Return the present text."""
        return "".join(part.text for part in self.now)

    @property
    def spaces(self) -> str:
        """Describe a change in the number of spaces at the start and end, because spaces are invisible."""
        if self.difference not in (ArgumentDifference.CHANGED, ArgumentDifference.ADDED):
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
    changes: tuple[ComparedArgument, ...]

    @property
    def different(self) -> tuple[ComparedArgument, ...]:
        """The arguments that differ."""
        return tuple(c for c in self.changes if c.difference is not ArgumentDifference.SAME)

    @property
    def same(self) -> tuple[ComparedArgument, ...]:
        """The arguments that are the same."""
        return tuple(c for c in self.changes if c.difference is ArgumentDifference.SAME)


def similar(
    approval: ApprovalView, principal: Principal | None, *, until: float | None = None
) -> Similar | None:
    """Compare with the newest similar approval that this principal may read; None if there is none.

    `until` is a time of `time.monotonic()`: after it, the words of the remaining arguments are not compared.
    """
    rows = Approval.objects.filter(
        approvals.readable_requests(principal),
        OF_CALL,
        tool=approval.tool,
        path=list(approval.path),
        status=Approval.Status.APPROVED,
        allowance=None,  # a person saw it
        removed_at=None,
        decided_at__lt=approval.decided_at or timezone.now(),
    ).exclude(pk=approval.id)
    mine = Subquery(Approval.objects.filter(pk=approval.id).values("args"))
    row = rows.order_by("-decided_at").annotate(compared_args=mine).first()
    if row is None or row.decided_by is None or row.decided_at is None:
        return None
    if approval.tampered or verification.fault(row):
        return None  # the row may have arguments that no reviewer approved
    return Similar(
        id=row.id,
        run=row.run_id,
        decided_by=row.decided_by,
        decided_at=row.decided_at,
        changes=tuple(
            compared(
                json.loads(row.edited or row.args),
                json.loads(row.compared_args),
                until=until,
                secret=_secrets(row.tool),
            )
        ),
    )


def compared(
    was: Any,
    now: Any,
    *,
    until: float | None = None,
    secret: Callable[[Any], frozenset[str]] = lambda args: frozenset(),
) -> list[ComparedArgument]:
    """Compare all arguments of both, in the order of `now`. Arguments that are no object are compared as one.

    `secret` returns the names of arguments with a sealed value.
    """
    hidden = secret(was) | secret(now)
    if not isinstance(was, dict) or not isinstance(now, dict):
        was, now = {"arguments": was}, {"arguments": now}
    names = [*now, *(name for name in was if name not in now)]
    return [
        ComparedArgument(name=name, difference=ArgumentDifference.HIDDEN, was=(), now=())
        if name in hidden
        else _compared(name, was, now, until)
        for name in names
    ]


def _secrets(tool: str) -> Callable[[Any], frozenset[str]]:
    return partial(sealing.secret_args, tool)


def _compared(
    name: str, was: dict[str, Any], now: dict[str, Any], until: float | None
) -> ComparedArgument:
    if name not in was:
        added = _whole(_text(now[name]))
        return ComparedArgument(name=name, difference=ArgumentDifference.ADDED, was=(), now=added)
    if name not in now:
        left_out = _whole(_text(was[name]))
        return ComparedArgument(
            name=name, difference=ArgumentDifference.LEFT_OUT, was=left_out, now=()
        )
    before, after = _text(was[name]), _text(now[name])
    # Compared as JSON: 1 and true are equal in Python, but not for a tool.
    if _json(was[name]) == _json(now[name]):
        whole = (DiffPart(text=after, changed=False),)
        return ComparedArgument(name=name, difference=ArgumentDifference.SAME, was=whole, now=whole)
    over = until is not None and monotonic() >= until
    parts = None if over else _parts(before, after)
    old, new = parts or (_whole(before), _whole(after))
    in_words = parts is not None
    return ComparedArgument(
        name=name, difference=ArgumentDifference.CHANGED, was=old, now=new, in_words=in_words
    )


def _parts(was: str, now: str) -> tuple[tuple[DiffPart, ...], tuple[DiffPart, ...]] | None:
    """Split both texts into equal and different words; None if that would take too long."""
    if was == now:
        return _whole(was), _whole(now)
    if max(len(was), len(now)) > MAX_COMPARED:
        return None
    old, new = words(was), words(now)
    shared = blocks(old, new)
    if shared is None:
        return None
    left, right = list[_Piece](), list[_Piece]()
    for was_gap, now_gap, same in _gaps(old, new, shared):
        before, after = _characters(was_gap, now_gap) or ([(was_gap, True)], [(now_gap, True)])
        left += [*before, (same, False)]
        right += [*after, (same, False)]
    return _joined(left), _joined(right)


def _characters(old: list[str], new: list[str]) -> tuple[list[_Piece], list[_Piece]] | None:
    """Mark single characters where one word stands in place of another one like it, as in account numbers."""
    if len(old) != 1 or len(new) != 1 or max(len(old[0]), len(new[0])) > MAX_WORD:
        return None
    was, now = list(old[0]), list(new[0])
    shared = blocks(was, now) or []
    kept = sum(size for _, _, size in shared)
    if kept < MIN_KEPT or 2 * kept < max(len(was), len(now)):
        return None
    gaps = list(_gaps(was, now, shared))
    left = [piece for gap, _, same in gaps for piece in ((gap, True), (same, False))]
    right = [piece for _, gap, same in gaps for piece in ((gap, True), (same, False))]
    return left, right


def _gaps(
    old: list[str], new: list[str], shared: Iterable[Block]
) -> Iterator[tuple[list[str], list[str], list[str]]]:
    """Return what differs before each equal block, on both sides, with the block."""
    a = b = 0
    for start, at, size in shared:
        yield old[a:start], new[b:at], old[start : start + size]
        a, b = start + size, at + size


def _joined(pieces: list[_Piece]) -> tuple[DiffPart, ...]:
    return tuple(
        DiffPart(text="".join(words), changed=changed) for words, changed in pieces if words
    )


def _outer(text: str) -> tuple[int, int]:
    """Count the spaces at the beginning and the end of a text."""
    return len(text) - len(text.lstrip(" ")), len(text) - len(text.rstrip(" "))


def _counted(spaces: int) -> str:
    return f"{spaces or 'no'} space{'' if spaces == 1 else 's'}"


def _whole(text: str) -> tuple[DiffPart, ...]:
    return (DiffPart(text=text, changed=True),)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, indent=2)
