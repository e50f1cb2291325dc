"""The arguments of a call for reviewers: all in full, with labels from the schema; and a filter for changed ones.

Of changed arguments, short values stand in one row, and long ones are compared by line.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django import template

from approvals.reads.approval_views import ApprovalView
from approvals.requests.argument_changes import ArgumentChange
from approvals.web.components.preview import Difference, Item
from runtime.core.run.events import BlobRef
from runtime.core.values.json_values import decode_file
from runtime.web.display import as_json
from runtime.web.markdown import has_markdown, render_markdown
from runtime.web.scalars import CURRENCIES, is_number

MAX_OPEN, MAX_OPEN_LINES = 600, 12  # characters and lines of a copy that is shown without folding
SCREENS, LINE = 64, 80  # lines of a text on two screens, and characters of a line
START, START_LINES = 240, 4  # characters and lines that stay visible of a folded value
MAX_LABEL = 60  # characters; an argument with a longer title has its name as the label
_RECIPIENTS = frozenset({"to", "recipient", "recipients"})
_HEADERS = ("from", "sender", "to", "recipient", "recipients", "cc", "bcc", "reply_to", "subject")
_BODIES = ("body", "text", "message", "content")
_ID_NAME = re.compile(r"(?:^|_)(?i:id|u?uid)$|[a-z]Id$")
_YEAR_NAME = re.compile(r"(?:^|_)year$", re.IGNORECASE)
_ID_VALUE = re.compile(r"[0-9a-f]{24,}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One argument. `is_given` is False for an argument of the schema that the call omits.

    `label` is its title in the schema, else its name; `is_renamed` if the name cannot be read from it.
    `unit` is the unit of a number, empty if neither the schema nor an argument names one.
    """

    name: str
    value: Any
    is_given: bool
    label: str = ""
    is_renamed: bool = False
    is_unknown: bool = False  # the schema has no such argument
    unit: str = ""
    is_copy: bool = False  # it stands in full elsewhere
    is_mail: bool = False  # a part of a mail
    is_letter: bool = False  # the text of a mail
    says_markdown: bool = False  # its schema

    @property
    def is_id(self) -> bool:
        """Whether it identifies a thing by a code, which a reviewer does not read."""
        return bool(_ID_NAME.search(self.name)) or (
            isinstance(self.value, str) and bool(_ID_VALUE.fullmatch(self.value))
        )

    @property
    def is_amount(self) -> bool:
        """Whether its digits are grouped: those of an id or a year are not."""
        return is_amount(self.name, self.value) and not self.is_code

    @property
    def is_code(self) -> bool:
        """Whether it is a number that counts nothing."""
        return is_number(self.value) and (self.is_id or bool(_YEAR_NAME.search(self.name)))

    @property
    def size(self) -> int:
        """The number of characters of a value that is long enough to fold; 0 for others.

        Prose is folded above two screens, a copy of it and JSON that is no tree sooner.
        """
        text = self._text
        if isinstance(self.value, str) and not self.is_copy:
            lines = sum(1 + len(line) // LINE for line in text.split("\n"))
            return len(text) if lines > SCREENS else 0
        return len(text) if len(text) > MAX_OPEN or text.count("\n") >= MAX_OPEN_LINES else 0

    @property
    def markdown(self) -> str:
        """The value rendered, if it is Markdown; empty for others. A mail is plain text unless its schema says more."""
        if not isinstance(self.value, str) or self.is_copy:
            return ""
        is_likely = not self.is_mail and has_markdown(self.value)
        return render_markdown(self.value) if self.says_markdown or is_likely else ""

    @property
    def start(self) -> str:
        """The beginning of a long value, for the line that unfolds it."""
        return "\n".join(self._text[:START].split("\n")[:START_LINES])

    @property
    def _text(self) -> str:
        is_stored = isinstance(self.value, BlobRef)
        return (
            "" if is_stored else self.value if isinstance(self.value, str) else as_json(self.value)
        )

    @property
    def ascii(self) -> str:
        """The value as JSON without invisible characters, for a script that copies it; empty for a stored one."""
        return "" if isinstance(self.value, BlobRef) else json.dumps(self.value)


def list_arguments(args: Any, schema: Any, *, is_copy: bool = False) -> list[Argument]:
    """List the given arguments in the schema's order, ids last, then the omitted ones.

    Those of a mail come as in a mail, its text after the subject. A value that is no object is one argument.
    """
    rules = read_properties(schema)
    if not isinstance(args, dict):
        return [
            Argument(
                name="arguments", label="arguments", value=args, is_given=True, is_copy=is_copy
            )
        ]
    mail = _find_mail_parts(rules, args)
    names = [name for name in rules if name in args] + [name for name in args if name not in rules]
    labels = {name: name_argument(name, rules.get(name)) for name in (*names, *rules)}
    counts = Counter(labels.values())
    present = [
        Argument(
            name=name,
            label=labels[name],
            is_renamed=is_renamed(name, labels[name]) or counts[labels[name]] > 1,
            is_unknown=bool(rules) and name not in rules,
            value=args[name],
            is_given=True,
            unit=find_unit(name, rules.get(name), args),
            is_copy=is_copy,
            is_mail=name in mail,
            is_letter=bool(mail) and name == mail[-1],
            says_markdown=isinstance(rule := rules.get(name), dict)
            and (
                rule.get("contentMediaType") == "text/markdown" or rule.get("format") == "markdown"
            ),
        )
        for name in [*mail, *(name for name in names if name not in mail)]
    ]
    omitted = [
        Argument(
            name=name,
            label=labels[name],
            is_renamed=is_renamed(name, labels[name]) or counts[labels[name]] > 1,
            value=rule.get("default") if isinstance(rule, dict) else None,
            is_given=False,
        )
        for name, rule in rules.items()
        if name not in args
    ]
    return sorted(present, key=lambda argument: argument.is_id) + omitted


def list_fields(value: Any) -> list[Argument]:
    """List the fields of a JSON object that has no schema, ids last. A value that is no object is one field."""
    members = value if isinstance(value, dict) else {"": value}
    rows = [
        Argument(
            name=name,
            label=name,
            value=member,
            is_given=True,
            unit=find_unit(name, None, members),
            is_copy=True,
        )
        for name, member in members.items()
    ]
    return sorted(rows, key=lambda field: field.is_id)


def read_properties(schema: Any) -> Mapping[str, Any]:
    """Return the schemas of the arguments by name; none if the schema is of no object."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return properties if isinstance(properties, dict) else {}


def name_argument(name: str, rule: Any) -> str:
    """Return the title of an argument, in small letters after the first if it only repeats the name."""
    title = rule.get("title") if isinstance(rule, dict) else None
    if not isinstance(title, str) or not 0 < len(title.strip()) <= MAX_LABEL:
        return name
    return title if is_renamed(name, title) else title.capitalize()


def is_renamed(name: str, label: str) -> bool:
    """Tell whether a label is more than the name with other letters' case and spaces."""
    return name.replace("_", " ").casefold() != label.replace("_", " ").casefold()


MAX_UNIT = 12  # characters; a longer text is not a unit

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?", re.ASCII)
_AMOUNTS = frozenset(
    {"amount", "balance", "cost", "fee", "price", "refund", "salary", "sum", "total", "value"}
)
_ENDINGS = {
    **{code: code.upper() for code in ("eur", "usd", "gbp", "chf", "jpy")},
    **{unit: unit for unit in ("seconds", "minutes", "hours", "days", "weeks", "months", "years")},
    "bytes": "bytes",
    "kb": "kB",
    "mb": "MB",
    "gb": "GB",
    "km": "km",
    "kg": "kg",
    "percent": "%",
    "euros": "euros",
    "dollars": "dollars",
}


def is_amount(name: str, value: Any) -> bool:
    """Tell whether a value is a number, or a text with one, that its name calls an amount."""
    if is_number(value):
        return True
    words = frozenset(name.lower().split("_"))
    return isinstance(value, str) and bool(words & _AMOUNTS) and bool(_NUMBER.fullmatch(value))


def find_unit(name: str, rule: Any, args: Mapping[str, Any]) -> str:
    """Return the unit of a number, empty if none is named or the value is no number."""
    if not is_amount(name, args.get(name)):
        return ""
    words = name.lower().split("_")
    if words[-1] == "cents":  # of any currency: 12500 cents are no 12500 euros
        currency = args.get("currency")
        return f"{currency} cents" if _is_unit(currency) else "cents"
    schema_units = [rule.get("unit"), rule.get("x-unit")] if isinstance(rule, dict) else []
    argument_units = [args.get(f"{name}_currency"), args.get(f"{name}_unit")]
    if _AMOUNTS & frozenset(words):
        argument_units.append(args.get("currency"))
    units = (str(unit) for unit in [*schema_units, *argument_units] if _is_unit(unit))
    unit = _ENDINGS.get(words[-1], "")
    return next(units, unit if len(words) > 1 or unit in CURRENCIES else "")


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
    rows = list[ChangeRow]()
    for change in changes:
        inner_schema, rules = schema, list[tuple[str, Any]]()
        for name in change.path.split("."):
            inner_schema = read_properties(inner_schema).get(name)
            rules.append((name, inner_schema))
        labels = [name_argument(name, rule) for name, rule in rules]
        is_whole = any(
            isinstance(value, BlobRef) or decode_file(value) is not None
            for value in (change.before, change.after)
        )
        differences: tuple[Difference, ...] = ()
        if isinstance(change.before, list) and isinstance(change.after, list):
            differences = Item(text="", before=change.before, after=change.after).differences
        elif not is_whole:
            differences = (Difference(name="", before=change.before, after=change.after),)
        name, rule = rules[-1]
        value = change.after if change.is_given else change.before
        rows.append(
            ChangeRow(
                change=change,
                label=" › ".join(labels),
                is_renamed=any(
                    is_renamed(name, label) for (name, _), label in zip(rules, labels, strict=True)
                ),
                unit=find_unit(name, rule, {**args, name: value}),
                is_whole=is_whole,
                differences=differences,
            )
        )
    return rows


def _find_mail_parts(rules: Mapping[str, Any], args: Mapping[str, Any]) -> list[str]:
    """Return the names of the parts of a mail in their order, its text last; none if the schema is of no mail."""
    present = [name for name in _HEADERS if name in rules and name in args]
    bodies = [name for name in _BODIES if name in rules and isinstance(args.get(name), str)]
    if "subject" not in present or not set(present) & _RECIPIENTS or len(bodies) != 1:
        return []
    return [*present, *bodies]


def _is_unit(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_UNIT
