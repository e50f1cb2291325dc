"""The sheet of a batch: several requests in one table, decided with one button, each for itself."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render

from approvals import clock
from approvals.decisions import batch as decisions
from approvals.reads import approval_views, usual
from approvals.reads.approval_views import ApprovalView
from approvals.rights import principals
from approvals.rules.unusual_values import UnusualValue
from approvals.web import list_position as places
from approvals.web.components import decision_form, preview
from approvals.web.components.arguments import Argument, list_arguments
from approvals.web.components.preview import PreviewCard
from runtime.core.run.continuation import MAX_DENIALS
from runtime.core.values.enums import Verdict
from runtime.core.values.limits import MAX_REASON
from runtime.errors import InvalidInput
from runtime.web.requests import explain, read_actor, read_reason, read_text, users

_UNCHECKED = "not checked for unusual values, because that took too long"
_WARNS = "its preview has a warning"
_UNKNOWN = "it has no preview"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """The value of an argument that differs between the calls, with its oddities. None is not given."""

    name: str
    argument: Argument | None
    odd: tuple[UnusualValue, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLine:
    """One call. `odd` are the oddities of values that all calls share, `notes` say why else it starts unticked."""

    approval: ApprovalView
    cells: tuple[Cell, ...]
    odd: tuple[UnusualValue, ...]
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
    """The calls of one tool. `columns` are the arguments that differ, `shared` those that are equal in all calls."""

    kind: tuple[str, ...]
    columns: tuple[str, ...]
    shared: tuple[Argument, ...]
    lines: tuple[BatchLine, ...]

    @property
    def query(self) -> str:
        """The parameters of the sheet of these calls alone."""
        return "&".join(f"item={line.approval.id}" for line in self.lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A request that is not approved together with others, and the reason. Some can still be denied with them."""

    approval: ApprovalView
    reason: str
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
        return sum(lines) + sum(approval.is_ticked for approval in self.left_out)

    @property
    def can_be_decided(self) -> int:
        """The number of requests with a box to tick."""
        return sum(len(table.lines) for table in self.tables) + sum(
            approval.can_be_denied for approval in self.left_out
        )

    @property
    def needs_reason(self) -> bool:
        """Whether the policy requires a reason for the approval of some of them."""
        return any(line.needs_reason for table in self.tables for line in table.lines)


def build_sheet(
    selected: Sequence[ApprovalView],
    unusual: usual.UnusualByApproval,
    *,
    missing: int,
    ticked: Collection[UUID] | None = None,
) -> Sheet:
    """Build the sheet of these requests. Without `ticked`, all calls are ticked in which nothing is odd."""
    kinds: dict[tuple[str, ...], list[ApprovalView]] = {}
    left_out = list[LeftOut]()
    for approval in selected:
        refusal = decisions.find_batch_refusal(approval, Verdict.APPROVE)
        if refusal is None:
            kinds.setdefault(decisions.name_call_kind(approval), []).append(approval)
            continue
        deniable = decisions.find_batch_refusal(approval, Verdict.DENY) is None
        left_out.append(
            LeftOut(
                approval=approval,
                reason=refusal.detail,
                can_be_denied=deniable,
                is_ticked=deniable and approval.id in (ticked or ()),
            )
        )
    return Sheet(
        tables=tuple(_build_table(kind, items, unusual, ticked) for kind, items in kinds.items()),
        left_out=tuple(left_out),
        missing=missing,
    )


def _build_table(
    kind: tuple[str, ...],
    items: Sequence[ApprovalView],
    unusual: usual.UnusualByApproval,
    ticked: Collection[UUID] | None,
) -> BatchTable:
    arguments_by_call = {
        approval.id: {
            argument.name: argument
            for argument in list_arguments(approval.args, approval.schema, is_copy=True)
            if argument.is_given
        }
        for approval in items
    }
    calls = arguments_by_call.values()
    names = list(dict.fromkeys(name for args in calls for name in args))
    columns = tuple(
        name
        for name in names
        # Compared as JSON: 1 and true are not equal.
        if len({json.dumps(args[name].value) if name in args else "" for args in calls}) > 1
    )
    first = arguments_by_call[items[0].id]
    return BatchTable(
        kind=kind,
        columns=columns,
        shared=tuple(first[name] for name in names if name not in columns),
        lines=tuple(
            _build_line(approval, arguments_by_call[approval.id], columns, unusual, ticked)
            for approval in items
        ),
    )


def _build_line(
    approval: ApprovalView,
    arguments_by_name: Mapping[str, Argument],
    columns: Sequence[str],
    unusual: usual.UnusualByApproval,
    ticked: Collection[UUID] | None,
) -> BatchLine:
    odd = unusual.by_request.get(approval.id)
    card = preview.build_card(approval.preview)
    notes = (
        *([_UNCHECKED] if odd is None else []),
        *([_WARNS] if card and card.warnings else []),
        *([_UNKNOWN] if card and card.missing else []),
    )
    by_argument = usual.group_by_argument(odd or ())
    is_plain = not odd and not notes
    return BatchLine(
        approval=approval,
        cells=tuple(
            Cell(
                name=name,
                argument=arguments_by_name.get(name),
                odd=tuple(by_argument.get(name, ())),
            )
            for name in columns
        ),
        odd=tuple(value for value in odd or () if value.argument not in columns),
        notes=notes,
        preview=card,
        is_ticked=is_plain if ticked is None else approval.id in ticked,
        needs_reason=approval.demands is not None and approval.demands.reason,
    )


@users.form
def batch(request: HttpRequest) -> HttpResponse:
    """Show the sheet of the selected requests; decide the ticked ones when it is sent."""
    if request.method != "POST":
        return _show_sheet(request)
    items = dict[UUID, object]()  # the digest of what the sheet showed, by request
    for item in request.POST.getlist("item"):
        approval_id, _, digest = item.partition(":")
        items[_parse_ids([approval_id])[0]] = digest
    try:
        outcomes = decisions.decide_each(
            items=items,
            verdict=_read_verdict(request),
            reason=read_reason(request),
            count=request.POST.get("count", ""),
            actor=read_actor(request),
        )
    except InvalidInput as exc:
        return _show_sheet(request, exc, items)
    return _show_results(request, outcomes, undone=False)


@users.action
def undo_batch(request: HttpRequest) -> HttpResponse:
    """Undo the decisions of a batch, each within its own undo window."""
    try:
        outcomes = decisions.undo_each(
            items=_parse_ids(request.POST.getlist("item")),
            actor=principals.make_actor(request.user),
        )
    except InvalidInput as exc:
        return _show_sheet(request, exc)
    return _show_results(request, outcomes, undone=True)


def _show_sheet(
    request: HttpRequest,
    problem: InvalidInput | None = None,
    ticked: dict[UUID, object] | None = None,
) -> HttpResponse:
    """Show the sheet; after a refused form, with its problem and the boxes as they were ticked."""
    actor = principals.make_actor(request.user)
    ids = _parse_ids(request.GET.getlist("item")) or list(ticked or {})
    too_many = len(ids) > decisions.MAX_ITEMS
    selected = approval_views.list_approvals_by_id([] if too_many else ids, actor=actor)
    unusual = usual.find_unusual_in_list(selected, principals.find_principal(actor), limit=None)
    sheet = build_sheet(selected, unusual, missing=len(ids) - len(selected), ticked=ticked)
    deny_reasons = decision_form.REASONS
    if len(sheet.tables) == 1:
        form = decision_form.build_denial_context(sheet.tables[0].lines[0].approval, ends_run=False)
        deny_reasons = form.get("deny_reasons", deny_reasons)
    position = places.read_position(request)
    refused = bool(problem) or too_many
    context = {
        "section": "inbox",
        "sheet": sheet,
        "selected": len(ids),
        "too_many": too_many,
        "first": "&".join(f"item={approval_id}" for approval_id in ids[: decisions.MAX_ITEMS]),
        "problem": problem,
        "list_query": position.query,
        "list_parameters": position.query.replace("?", "&"),
        "max_items": decisions.MAX_ITEMS,
        "counted_above": decisions.COUNTED_ABOVE,
        "max_denials": MAX_DENIALS,
        "max_reason": MAX_REASON,
        "reason": read_text(request.POST, "reason"),
        "count": read_text(request.POST, "count"),
        "deny_reasons": deny_reasons,
    }
    return render(request, "approvals/batch.html", context, status=422 if refused else 200)


def _show_results(
    request: HttpRequest, outcomes: tuple[decisions.BatchOutcome, ...], *, undone: bool
) -> HttpResponse:
    """Say what became of each request. If nothing was done, the status is that of the first refusal."""
    changed = [outcome.approval for outcome in outcomes if outcome.approval and not outcome.problem]
    undoable = [
        approval
        for approval in changed
        if not undone and approval.effective_at and approval.effective_at > clock.read_time()
    ]
    context = {
        "section": "inbox",
        "rows": [(row, explain(row.problem) if row.problem else "") for row in outcomes],
        "changed": changed,
        "number": len(outcomes),
        "undone": undone,
        "undoable": undoable,
        "undo_until": min(
            (approval.effective_at for approval in undoable if approval.effective_at), default=None
        ),
        "verdict": str(_read_verdict(request)),
        "list_query": places.read_position(request).query,
    }
    problems = [outcome.problem.status for outcome in outcomes if outcome.problem]
    status = 200 if changed else problems[0]
    return render(request, "approvals/batch_result.html", context, status=status)


def _read_verdict(request: HttpRequest) -> str:
    """Return the verdict of the button. A suggested reason denies at once if the browser runs no script."""
    preset = read_text(request.POST, "preset")
    return str(Verdict.DENY) if preset else read_text(request.POST, "verdict")


def _parse_ids(texts: list[str]) -> list[UUID]:
    try:
        return list(dict.fromkeys(UUID(text) for text in texts))
    except ValueError as exc:
        raise Http404 from exc
