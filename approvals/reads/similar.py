"""Compares the arguments of an approval with the newest earlier approval of the same tool by the same agents.

`approvals.reads.similar` orders the differences by their oddness.

Only approvals that the reader may read are used. Stored values are compared, secrets are not.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
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
from approvals.reads.approval_views import ApprovalView
from approvals.requests import verification
from approvals.rights import approval_rights
from approvals.rules import unusual_values
from approvals.rules.argument_values import PastValues
from runtime.keyring import sealing

MAX_EDITS = 100  # words removed or added, beyond which two texts count as entirely different
_WORD = re.compile(r"\w+|\s+|[^\w\s]")

Block = tuple[int, int, int]


def split_words(text: str) -> list[str]:
    """Split a text into words, blanks and marks. Joined, they are the text again."""
    return _WORD.findall(text)


def find_equal_blocks(old: Sequence[str], new: Sequence[str]) -> list[Block] | None:
    """Return the equal blocks as (start in old, start in new, length), in order.

    Returns None if more than MOST_EDITS words are removed or added.
    """
    shorter = min(len(old), len(new))
    start = next((n for n in range(shorter) if old[n] != new[n]), shorter)
    remaining = shorter - start
    end = next((n for n in range(remaining) if old[-1 - n] != new[-1 - n]), remaining)
    inner = _find_shared_blocks(old[start : len(old) - end], new[start : len(new) - end])
    if inner is None:
        return None
    ends = (len(old) - end, len(new) - end, end)
    return [(0, 0, start), *((a + start, b + start, size) for a, b, size in inner), ends]


def _find_shared_blocks(old: Sequence[str], new: Sequence[str]) -> list[Block] | None:
    """Run Myers' shortest edit script, up to MOST_EDITS edits."""
    reach = {1: 0}
    trail: list[dict[int, int]] = []
    for edits in range(min(MAX_EDITS, len(old) + len(new)) + 1):
        trail.append(dict(reach))
        for diagonal in range(-edits, edits + 1, 2):
            x = _compute_entry(reach, diagonal, edits)
            y = x - diagonal
            while x < len(old) and y < len(new) and old[x] == new[y]:
                x, y = x + 1, y + 1
            reach[diagonal] = x
            if x >= len(old) and y >= len(new):
                return _walk_back(trail, len(old), len(new))
    return None


def _compute_entry(reach: dict[int, int], diagonal: int, edits: int) -> int:
    """Return the position in the old text at which a diagonal is entered: by an added word, or a removed one."""
    came = diagonal == -edits or (diagonal != edits and reach[diagonal - 1] < reach[diagonal + 1])
    return reach[diagonal + 1] if came else reach[diagonal - 1] + 1


def _walk_back(trail: list[dict[int, int]], x: int, y: int) -> list[Block]:
    blocks_back: list[Block] = []
    for edits in range(len(trail) - 1, -1, -1):
        diagonal = x - y
        entered = _compute_entry(trail[edits], diagonal, edits)
        if x > entered:
            blocks_back.append((entered, entered - diagonal, x - entered))
        if edits == 0:
            break
        came = entered == trail[edits].get(diagonal + 1) and (
            diagonal == -edits
            or (diagonal != edits and trail[edits][diagonal - 1] < trail[edits][diagonal + 1])
        )
        x = entered if came else entered - 1
        y = x - (diagonal + 1 if came else diagonal - 1)
    return blocks_back[::-1]


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
        was, now = (
            _count_outer_spaces("".join(part.text for part in self.was)),
            _count_outer_spaces(self.text),
        )
        sentences = [
            f"It {verb} with {_describe_spaces(after)}"
            f"{f', before with {_describe_spaces(before)}' if self.was else ''}."
            for verb, before, after in zip(("begins", "ends"), was, now, strict=True)
            if before != after
        ]
        return " ".join(sentences)


@dataclass(frozen=True, slots=True, kw_only=True)
class Similar:
    """The newest similar approval before this one, and the comparison of each argument."""

    id: UUID
    run: UUID
    decided_by: str
    decided_at: datetime
    changes: tuple[ComparedArgument, ...]

    @property
    def unchanged(self) -> tuple[ComparedArgument, ...]:
        """The arguments that are the same."""
        return tuple(c for c in self.changes if c.difference is ArgumentDifference.SAME)


def find_similar(approval: ApprovalView, *, until: float | None = None) -> Similar | None:
    """Compare with the newest similar approval that its reader may read; None if there is none.

    `until` is a time of `time.monotonic()`: after it, the words of the remaining arguments are not compared.
    """
    rows = Approval.objects.filter(
        approval_rights.match_readable_requests(approval.reader),
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
    if approval.tampered or verification.find_fault(row):
        return None  # the row may have arguments that no reviewer approved
    return Similar(
        id=row.id,
        run=row.run_id,
        decided_by=row.decided_by,
        decided_at=row.decided_at,
        changes=tuple(
            compare_arguments(
                json.loads(row.edited or row.args),
                json.loads(row.compared_args),
                until=until,
                secret=partial(sealing.list_secret_args, row.tool),
            )
        ),
    )


def compare_arguments(
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
    rows = list[ComparedArgument]()
    for name in [*now, *(name for name in was if name not in now)]:
        before, after = _format_text(was.get(name, "")), _format_text(now.get(name, ""))
        old, new, in_words = _as_changed(before), _as_changed(after), True
        if name in hidden:
            difference, old, new = ArgumentDifference.HIDDEN, (), ()
        elif name not in was:
            difference, old = ArgumentDifference.ADDED, ()
        elif name not in now:
            difference, new = ArgumentDifference.LEFT_OUT, ()
        elif _format_json(was[name]) == _format_json(
            now[name]
        ):  # as JSON: 1 and true are equal in Python alone
            difference, old = ArgumentDifference.SAME, (DiffPart(text=after, changed=False),)
            new = old
        else:
            difference = ArgumentDifference.CHANGED
            is_late = until is not None and monotonic() >= until
            parts = None if is_late else _split_parts(before, after)
            in_words = parts is not None
            old, new = parts or (old, new)
        rows.append(
            ComparedArgument(name=name, difference=difference, was=old, now=new, in_words=in_words)
        )
    return rows


def _split_parts(was: str, now: str) -> tuple[tuple[DiffPart, ...], tuple[DiffPart, ...]] | None:
    """Split both texts into equal and different words; None if that would take too long."""
    if was == now:
        return _as_changed(was), _as_changed(now)
    if max(len(was), len(now)) > MAX_COMPARED:
        return None
    old, new = split_words(was), split_words(now)
    shared = find_equal_blocks(old, new)
    if shared is None:
        return None
    old_pieces, new_pieces = list[_Piece](), list[_Piece]()
    for was_gap, now_gap, shared_words in _list_gaps(old, new, shared):
        before, after = _mark_characters(was_gap, now_gap) or ([(was_gap, True)], [(now_gap, True)])
        old_pieces += [*before, (shared_words, False)]
        new_pieces += [*after, (shared_words, False)]
    return _join_pieces(old_pieces), _join_pieces(new_pieces)


def _mark_characters(old: list[str], new: list[str]) -> tuple[list[_Piece], list[_Piece]] | None:
    """Mark single characters where one word stands in place of another one like it, as in account numbers."""
    if len(old) != 1 or len(new) != 1 or max(len(old[0]), len(new[0])) > MAX_WORD:
        return None
    was, now = list(old[0]), list(new[0])
    shared = find_equal_blocks(was, now) or []
    shared_size = sum(size for _, _, size in shared)
    if shared_size < MIN_KEPT or 2 * shared_size < max(len(was), len(now)):
        return None
    gaps = list(_list_gaps(was, now, shared))
    old_pieces = [piece for gap, _, same in gaps for piece in ((gap, True), (same, False))]
    new_pieces = [piece for _, gap, same in gaps for piece in ((gap, True), (same, False))]
    return old_pieces, new_pieces


def _list_gaps(
    old: list[str], new: list[str], shared: Iterable[Block]
) -> Iterator[tuple[list[str], list[str], list[str]]]:
    """Return what differs before each equal block, on both sides, with the block."""
    a = b = 0
    for start, at, size in shared:
        yield old[a:start], new[b:at], old[start : start + size]
        a, b = start + size, at + size


def _join_pieces(pieces: list[_Piece]) -> tuple[DiffPart, ...]:
    return tuple(
        DiffPart(text="".join(words), changed=changed) for words, changed in pieces if words
    )


def _count_outer_spaces(text: str) -> tuple[int, int]:
    """Count the spaces at the beginning and the end of a text."""
    return len(text) - len(text.lstrip(" ")), len(text) - len(text.rstrip(" "))


def _describe_spaces(spaces: int) -> str:
    return f"{spaces or 'no'} space{'' if spaces == 1 else 's'}"


def _as_changed(text: str) -> tuple[DiffPart, ...]:
    return (DiffPart(text=text, changed=True),)


def _format_text(value: Any) -> str:
    return value if isinstance(value, str) else _format_json(value)


def _format_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, indent=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """An argument: how it differs from the last approval, whether it is odd, and its usual values in words."""

    change: ComparedArgument
    is_odd: bool
    usual: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalComparison:
    """The last similar approval, and the arguments in three groups: to look at, always different, the same."""

    last: Similar
    past: PastValues
    rows: tuple[Compared, ...]
    varying: tuple[ComparedArgument, ...]
    unchanged: tuple[ComparedArgument, ...]


def compare(
    last: Similar, past: PastValues, oddities: Collection[unusual_values.UnusualValue]
) -> ApprovalComparison:
    """Sort the changes since the last similar approval by their oddness."""
    weights = dict[str, int]()
    for oddity in oddities:
        weights[oddity.argument] = min(
            weights.get(oddity.argument, len(unusual_values.ORDER)), oddity.weight
        )
    rows, varying, unchanged = list[Compared](), list[ComparedArgument](), list[ComparedArgument]()
    for change in last.changes:
        is_odd = change.name in weights
        usual_text = unusual_values.describe_usual_values(change.name, past)
        if change.difference is ArgumentDifference.SAME and not is_odd:
            unchanged.append(change)
        elif (
            not is_odd and not usual_text and unusual_values.is_always_different(change.name, past)
        ):
            varying.append(change)
        else:
            rows.append(Compared(change=change, is_odd=is_odd, usual="" if is_odd else usual_text))
    rows.sort(key=lambda row: weights.get(row.change.name, len(unusual_values.ORDER)))
    return ApprovalComparison(
        last=last, past=past, rows=tuple(rows), varying=tuple(varying), unchanged=tuple(unchanged)
    )
