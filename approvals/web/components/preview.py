"""The preview of a call for reviewers, compared with the one that was approved before."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any, Literal

from runtime.reads.version_diff import MAX_LINES, DiffLine, compare_lines
from runtime.web.display import as_json

Mark = Literal["", "new", "gone"]  # compared with the approved preview
# Characters and lines of a value that is shown beside the other.
MAX_SHORT, MAX_SHORT_LINES = 200, 4
MAX_DIFFERENCES = 50  # in one change; more are shown as lines
# Characters and lines of a difference that is shown without folding.
MAX_OPEN, MAX_OPEN_LINES = 600, 12


@dataclass(frozen=True, kw_only=True)
class Difference:
    """What changes at one place of a value. An empty `name` is the value itself."""

    name: str
    before: Any
    after: Any
    is_added: bool = False
    is_removed: bool = False

    @property
    def is_short(self) -> bool:
        """Whether both values have room beside each other."""
        return _is_short(self.before) and _is_short(self.after)

    @cached_property
    def lines(self) -> tuple[DiffLine, ...]:
        """The lines that differ, with some around them; empty if there are more than a page shows."""
        before, after = self.before, self.after
        are_texts = isinstance(before, str) and isinstance(after, str)
        if before is not None and after is not None and not are_texts:
            before, after = as_json(before), as_json(after)
        lines = compare_lines(before, after)
        return lines if len(lines) <= MAX_LINES else ()

    @property
    def is_open(self) -> bool:
        """Whether the lines are few enough to be shown without folding."""
        count = len(self.lines)
        return (
            0 < count <= MAX_OPEN_LINES and sum(len(line.text) for line in self.lines) <= MAX_OPEN
        )

    @property
    def counts(self) -> str:
        """How many lines come and go."""
        kinds = Counter(line.kind for line in self.lines)
        parts = [("removed", kinds["was"]), ("added", kinds["is"])]
        return ", ".join(f"{n} line{'' if n == 1 else 's'} {word}" for word, n in parts if n)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One entry of a part. A change has `before` and `after`, a count its number in `after` and the earlier one."""

    text: str
    before: Any = None
    after: Any = None
    mark: Mark = ""

    @property
    def differences(self) -> tuple[Difference, ...]:
        """What changes within the value. If that is much, the values are the one difference."""
        differences = tuple(islice(_list_differences(self.before, self.after), MAX_DIFFERENCES + 1))
        if len(differences) <= MAX_DIFFERENCES:
            return differences
        return (Difference(name="", before=self.before, after=self.after),)

    @property
    def unchanged(self) -> int:
        """How many entries of a list or an object stay as they are; 0 if only their order changes."""
        if isinstance(self.before, list) and isinstance(self.after, list):
            added = _list_missing(self.after, self.before)
            is_order = not added and len(self.before) == len(self.after)
            return 0 if is_order else len(self.after) - len(added)
        if isinstance(self.before, dict) and isinstance(self.after, dict):
            after = self.after
            return sum(
                name in after and _read_text(value) == _read_text(after[name])
                for name, value in self.before.items()
            )
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewCard:
    """The card of a preview. `missing` says why there is none, `unjudged` why the risk could not be judged.

    With `differs` an earlier approval does not count, because the preview was another one then.
    """

    unjudged: str
    missing: str
    differs: bool
    summary: tuple[Item, ...]
    changes: tuple[Item, ...]
    counts: tuple[Item, ...]
    targets: tuple[Item, ...]
    warnings: tuple[Item, ...]


def build_card(preview: Any) -> PreviewCard | None:
    """Return the card, None if the worker found nothing out. A row that was tampered with may hold anything."""
    content = _read_object(preview)
    if not content:
        return None
    now, before = _read_object(content.get("shown")), _read_object(content.get("before"))
    compared = before if "before" in content else None
    changes = list(_list_changes(now))
    if compared is not None:
        earlier = list(_list_changes(compared))
        removed = [replace(item, mark="gone") for item in earlier if item not in changes]
        present = [item if item in earlier else replace(item, mark="new") for item in changes]
        changes = [*removed, *present]
    these, those = _read_object(now.get("counts")), _read_object(before.get("counts"))
    if compared is None:
        counts = [Item(text=name, after=number) for name, number in these.items()]
    else:
        counts = [
            Item(
                text=name,
                before=those.get(name, 0),
                after=these.get(name, 0),
                mark="" if these.get(name, 0) == those.get(name, 0) else "new",
            )
            for name in {**these, **those}
        ]
    return PreviewCard(
        unjudged=str(content.get("unjudged", "")),
        missing=str(content.get("missing", "")),
        differs=compared is not None,
        summary=_compare_texts([now["summary"]] if "summary" in now else [], compared, "summary"),
        changes=tuple(changes),
        counts=tuple(counts),
        targets=_compare_texts(_read_list(now.get("targets")), compared, "targets"),
        warnings=_compare_texts(_read_list(now.get("warnings")), compared, "warnings"),
    )


def _compare_texts(now: list[Any], before: Mapping[str, Any] | None, name: str) -> tuple[Item, ...]:
    if before is None:
        return tuple(Item(text=str(text)) for text in now)
    value = before.get(name, [])
    was = value if isinstance(value, list) else [value]
    removed = [Item(text=str(text), mark="gone") for text in was if text not in now]
    present = [Item(text=str(text), mark="" if text in was else "new") for text in now]
    return (*removed, *present)


def _list_changes(preview: Mapping[str, Any]) -> Iterator[Item]:
    for change in map(_read_object, _read_list(preview.get("changes"))):
        yield Item(
            text=str(change.get("what", "")),
            before=change.get("before"),
            after=change.get("after"),
        )


def _list_differences(before: Any, after: Any, name: str = "") -> Iterator[Difference]:
    """Yield what differs: entries of objects by their names, entries of lists that come or go, else the values."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in [*before, *(key for key in after if key not in before)]:
            label = f"{name} › {key}" if name else str(key)
            if key not in after:
                yield Difference(name=label, before=before[key], after=None, is_removed=True)
            elif key not in before:
                yield Difference(name=label, before=None, after=after[key], is_added=True)
            elif _read_text(before[key]) != _read_text(after[key]):
                yield from _list_differences(before[key], after[key], label)
        return
    removed, added = [], []
    if isinstance(before, list) and isinstance(after, list):
        removed, added = _list_missing(before, after), _list_missing(after, before)
        for entry in removed:
            yield Difference(name=name, before=entry, after=None, is_removed=True)
        for entry in added:
            yield Difference(name=name, before=None, after=entry, is_added=True)
    if not removed and not added:
        yield Difference(
            name=name,
            before=before,
            after=after,
            is_added=before is None and not name,
            is_removed=after is None and not name,
        )


def _list_missing(entries: list[Any], compared: list[Any]) -> list[Any]:
    """Return the entries that the other list has fewer times."""
    counts = Counter(map(_read_text, compared))
    missing = []
    for entry in entries:
        text = _read_text(entry)
        counts[text] -= 1
        if counts[text] < 0:
            missing.append(entry)
    return missing


def _read_text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _is_short(value: Any) -> bool:
    text = value if isinstance(value, str) else _read_text(value)
    return len(text) <= MAX_SHORT and text.count("\n") < MAX_SHORT_LINES


def _read_object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _read_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
