"""The preview of a call for reviewers, compared with the one that was approved before."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Mark = Literal["", "new", "gone"]  # compared with the approved preview


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One entry of a part. A change has `before` and `after`, a count its number in `after` and the earlier one."""

    text: str
    before: Any = None
    after: Any = None
    mark: Mark = ""


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


def card(preview: Any) -> PreviewCard | None:
    """Return the card, None if the worker found nothing out. A row that was tampered with may hold anything."""
    content = _object(preview)
    if not content:
        return None
    now, before = _object(content.get("shown")), _object(content.get("before"))
    compared = before if "before" in content else None
    return PreviewCard(
        unjudged=str(content.get("unjudged", "")),
        missing=str(content.get("missing", "")),
        differs=compared is not None,
        summary=_texts([now["summary"]] if "summary" in now else [], compared, "summary"),
        changes=_changes(now, compared),
        counts=_counts(now, compared),
        targets=_texts(_list(now.get("targets")), compared, "targets"),
        warnings=_texts(_list(now.get("warnings")), compared, "warnings"),
    )


def _texts(now: list[Any], before: Mapping[str, Any] | None, name: str) -> tuple[Item, ...]:
    if before is None:
        return tuple(Item(text=str(text)) for text in now)
    value = before.get(name, [])
    was = value if isinstance(value, list) else [value]
    removed = [Item(text=str(text), mark="gone") for text in was if text not in now]
    present = [Item(text=str(text), mark="" if text in was else "new") for text in now]
    return (*removed, *present)


def _changes(now: Mapping[str, Any], before: Mapping[str, Any] | None) -> tuple[Item, ...]:
    these = list(_rows(now))
    if before is None:
        return tuple(these)
    those = list(_rows(before))
    removed = [_marked(item, "gone") for item in those if item not in these]
    return (*removed, *(item if item in those else _marked(item, "new") for item in these))


def _rows(preview: Mapping[str, Any]) -> Iterator[Item]:
    for change in map(_object, _list(preview.get("changes"))):
        yield Item(
            text=str(change.get("what", "")),
            before=change.get("before"),
            after=change.get("after"),
        )


def _marked(item: Item, mark: Mark) -> Item:
    return Item(text=item.text, before=item.before, after=item.after, mark=mark)


def _counts(now: Mapping[str, Any], before: Mapping[str, Any] | None) -> tuple[Item, ...]:
    these = _object(now.get("counts"))
    if before is None:
        return tuple(Item(text=name, after=number) for name, number in these.items())
    those = _object(before.get("counts"))
    return tuple(
        Item(
            text=name,
            before=those.get(name, 0),
            after=these.get(name, 0),
            mark="" if these.get(name, 0) == those.get(name, 0) else "new",
        )
        for name in {**these, **those}
    )


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
