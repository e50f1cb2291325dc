"""A template filter for changed arguments: short values stand in one row, long ones are compared by line."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django import template

from approvals.reads.approval_views import ApprovalView
from approvals.requests.argument_changes import ArgumentChange
from approvals.web.components.arguments import is_renamed, label_of, properties_of, unit_of
from approvals.web.components.preview import Difference, Item
from runtime.core.run.events import BlobRef
from runtime.core.values.files import file_of

register = template.Library()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRow:
    """One changed argument. `label` has the titles along its path; `is_renamed` if they hide a name.

    `is_whole` if both values are shown as they are: a file, or a text that is stored elsewhere, has no lines.
    """

    change: ArgumentChange
    label: str
    is_renamed: bool
    unit: str
    is_whole: bool
    differences: tuple[Difference, ...]


@register.filter
def change_rows(
    changes: Iterable[ArgumentChange], approval: ApprovalView | None = None
) -> list[ChangeRow]:
    """Return the rows. Without a request, and its schema, arguments have their names."""
    args = approval.args if approval and isinstance(approval.args, dict) else {}
    schema = approval.schema if approval else None
    return [_row(change, args, schema) for change in changes]


def _row(change: ArgumentChange, args: Mapping[str, Any], schema: Any) -> ChangeRow:
    rules = list[tuple[str, Any]]()
    for name in change.path.split("."):
        schema = properties_of(schema).get(name)
        rules.append((name, schema))
    labels = [label_of(name, rule) for name, rule in rules]
    is_whole = any(
        isinstance(value, BlobRef) or file_of(value) is not None
        for value in (change.before, change.after)
    )
    differences: tuple[Difference, ...] = ()
    if isinstance(change.before, list) and isinstance(change.after, list):
        differences = Item(text="", before=change.before, after=change.after).differences
    elif not is_whole:
        differences = (Difference(name="", before=change.before, after=change.after),)
    value = change.after if change.is_given else change.before
    name, rule = rules[-1]
    return ChangeRow(
        change=change,
        label=" › ".join(labels),
        is_renamed=any(
            is_renamed(*pair) for pair in zip((n for n, _ in rules), labels, strict=True)
        ),
        unit=unit_of(name, rule, {**args, name: value}),
        is_whole=is_whole,
        differences=differences,
    )
