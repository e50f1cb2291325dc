"""The table of a batch: the differences between several calls of one tool, and those that are left out."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from approvals.decisions import batch
from approvals.reads import usual
from approvals.reads.approval_views import ApprovalView
from approvals.rules.oddity import Oddity
from approvals.web.parts import preview
from approvals.web.parts.arguments import Argument, arguments
from approvals.web.parts.preview import PreviewCard
from runtime.core.values.enums import Verdict

_UNCHECKED = "not checked for unusual values, because that took too long"
_WARNS = "its preview has a warning"
_UNKNOWN = "it has no preview"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """The value of an argument that differs between the calls, with its oddities. None is not given."""

    name: str
    argument: Argument | None
    odd: tuple[Oddity, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLine:
    """One call. `odd` are the oddities of values that all calls share, `notes` say why else it starts unticked."""

    approval: ApprovalView
    cells: tuple[Cell, ...]
    odd: tuple[Oddity, ...]
    notes: tuple[str, ...]
    preview: PreviewCard | None
    is_ticked: bool
    needs_reason: bool

    @property
    def is_odd(self) -> bool:
        """Whether something about the call is odd, so that it starts unticked."""
        return bool(self.odd or self.notes or any(cell.odd for cell in self.cells))


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTable:
    """The calls of one tool. `columns` are the arguments that differ, `same` those that are equal in all calls."""

    kind: tuple[str, ...]
    columns: tuple[str, ...]
    same: tuple[Argument, ...]
    lines: tuple[BatchLine, ...]

    @property
    def query(self) -> str:
        """The parameters of the sheet of these calls alone."""
        return "&".join(f"item={line.approval.id}" for line in self.lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A request that is not approved together with others, and why. Some can still be denied with them."""

    approval: ApprovalView
    why: str
    can_be_denied: bool
    is_ticked: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """Everything selected: a table for each tool, and the rest. `missing` counts the requests not found."""

    tables: tuple[BatchTable, ...]
    left_out: tuple[LeftOut, ...]
    missing: int

    @property
    def ticked(self) -> int:
        """The number of ticked requests."""
        lines = [line.is_ticked for table in self.tables for line in table.lines]
        return sum(lines) + sum(one.is_ticked for one in self.left_out)

    @property
    def can_be_decided(self) -> int:
        """The number of requests with a box to tick."""
        return sum(len(table.lines) for table in self.tables) + sum(
            one.can_be_denied for one in self.left_out
        )

    @property
    def needs_reason(self) -> bool:
        """Whether the policy requires a reason for the approval of some of them."""
        return any(line.needs_reason for table in self.tables for line in table.lines)


def sheet(
    selected: Sequence[ApprovalView],
    found: usual.OdditiesByApproval,
    *,
    missing: int,
    ticked: Collection[UUID] | None = None,
) -> Sheet:
    """Build the sheet of these requests. Without `ticked`, all calls are ticked in which nothing is odd."""
    kinds: dict[tuple[str, ...], list[ApprovalView]] = {}
    left_out = list[LeftOut]()
    for approval in selected:
        why = batch.left_out(approval, Verdict.APPROVE)
        if why is None:
            kinds.setdefault(batch.kind_of(approval), []).append(approval)
            continue
        deniable = batch.left_out(approval, Verdict.DENY) is None
        left_out.append(
            LeftOut(
                approval=approval,
                why=why.detail,
                can_be_denied=deniable,
                is_ticked=deniable and approval.id in (ticked or ()),
            )
        )
    return Sheet(
        tables=tuple(_table(kind, items, found, ticked) for kind, items in kinds.items()),
        left_out=tuple(left_out),
        missing=missing,
    )


def _table(
    kind: tuple[str, ...],
    items: Sequence[ApprovalView],
    found: usual.OdditiesByApproval,
    ticked: Collection[UUID] | None,
) -> BatchTable:
    given = {approval.id: _given(approval) for approval in items}
    names = list(dict.fromkeys(name for args in given.values() for name in args))
    columns = tuple(name for name in names if _differs(name, given.values()))
    first = given[items[0].id]
    return BatchTable(
        kind=kind,
        columns=columns,
        same=tuple(first[name] for name in names if name not in columns),
        lines=tuple(
            _line(approval, given[approval.id], columns, found, ticked) for approval in items
        ),
    )


def _line(
    approval: ApprovalView,
    given: Mapping[str, Argument],
    columns: Sequence[str],
    found: usual.OdditiesByApproval,
    ticked: Collection[UUID] | None,
) -> BatchLine:
    odd = found.by_request.get(approval.id)
    card = preview.card(approval.preview)
    notes = (
        *([_UNCHECKED] if odd is None else []),
        *([_WARNS] if card and card.warnings else []),
        *([_UNKNOWN] if card and card.missing else []),
    )
    by_argument = usual.by_argument(odd or ())
    is_plain = not odd and not notes
    return BatchLine(
        approval=approval,
        cells=tuple(
            Cell(name=name, argument=given.get(name), odd=tuple(by_argument.get(name, ())))
            for name in columns
        ),
        odd=tuple(one for one in odd or () if one.argument not in columns),
        notes=notes,
        preview=card,
        is_ticked=is_plain if ticked is None else approval.id in ticked,
        needs_reason=approval.demands is not None and approval.demands.reason,
    )


def _given(approval: ApprovalView) -> dict[str, Argument]:
    return {one.name: one for one in arguments(approval.args, approval.schema) if one.given}


def _differs(name: str, given: Iterable[Mapping[str, Argument]]) -> bool:
    """Tell whether an argument is not equal in all calls. It is compared as JSON: 1 and true are not equal."""
    return len({json.dumps(args[name].value) if name in args else "" for args in given}) > 1
