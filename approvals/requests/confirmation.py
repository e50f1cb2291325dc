"""Names the object of a high-risk call. A person who lets the call start repeats this name, which takes a second step.

An approval with changes repeats the name of the changed call's object, because that is the call that starts.
"""

import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final
from unicodedata import normalize

from approvals.models import Approval
from approvals.rules import policy
from runtime.core.values.verdicts import STARTING_GATES
from runtime.keyring import sealing

_MOST_CHARACTERS: Final = 32
_MOST_VALUES: Final = 200  # of the arguments, that are looked at
_OF_WORD: Final = re.compile(r"\w")
_ID: Final = re.compile(r"[0-9a-f-]{16,}|\S{24,}", re.IGNORECASE)  # hardly read, and hardly typed
_Path = tuple[str | int, ...]
_Named = tuple[_Path | None, str]


def find_required_name(approval: Approval, edited: Any = None) -> str | None:
    """Return the name that starting the call must repeat; None if it needs no second step.

    `edited` are the arguments of an approval with changes.
    """
    if approval.kind not in STARTING_GATES or approval.risk in policy.UNDOABLE:
        return None
    try:
        args = sealing.redact_args(approval.tool, json.loads(approval.args))
    except (ValueError, RecursionError):  # tampered with: it cannot be decided
        args = None
    if edited is None:
        return name_object(approval.tool, approval.sentence, args)
    return name_edited_object(
        approval.tool, approval.sentence, args, sealing.redact_args(approval.tool, edited)
    )


def name_object(tool: str, sentence: str, args: Any) -> str:
    """Return the argument that tells most: the first text in the sentence, else a number in it, else another text.

    Without one that a person can read and type, it is the name of the tool.
    """
    return _find_object(tool, sentence, args)[1]


def name_edited_object(tool: str, sentence: str, args: Any, edited: Any) -> str:
    """Return the object of the changed call: the value that took the place of the proposed call's object."""
    object_path, _ = _find_object(tool, sentence, args)
    value = next((now for path, now in _walk_leaves(edited) if path == object_path), None)
    if isinstance(value, str) and _is_typeable(value):
        return _shorten_text(value)
    if _is_number(value):
        return json.dumps(value)
    return name_object(tool, sentence, edited)


def _find_object(tool: str, sentence: str, args: Any) -> _Named:
    """Return the object's name and its path in the arguments."""
    texts, numbers = list[_Named](), list[_Named]()
    for path, value in islice(_walk_leaves(args), _MOST_VALUES):
        if isinstance(value, str) and _is_typeable(value):
            texts.append((path, _shorten_text(value)))
        elif _is_number(value):
            numbers.append((path, json.dumps(value)))
    for named_values in (_order_by_place(texts, sentence), _order_by_place(numbers, sentence)):
        if named_values:
            return named_values[0]
    return next((named for named in texts if not _ID.fullmatch(named[1])), (None, tool))


def is_same_name(text: str, name: str) -> bool:
    """Tell whether a person typed this name. Case and the width of spaces do not count; look-alike letters do."""
    return _fold_text(text) == _fold_text(name)


def _walk_leaves(value: Any, path: _Path = ()) -> Iterator[tuple[_Path, Any]]:
    """Yield the texts and numbers, each with the names and indexes that lead to it."""
    match value:
        case dict() if sealing.MARK not in value:
            for name, inner in value.items():
                yield from _walk_leaves(inner, (*path, name))
        case list():
            for index, inner in enumerate(value):
                yield from _walk_leaves(inner, (*path, index))
        case str() | int() | float():
            yield path, value
        case _:
            return


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_typeable(text: str) -> bool:
    """Tell whether all characters can be seen, and at least one is a letter or a digit."""
    is_visible = text.isprintable() and any(char.isalnum() for char in text)
    return is_visible and text != sealing.REDACTED


def _shorten_text(text: str) -> str:
    """Shorten a long text after a word."""
    words = " ".join(text.split())
    if len(words) <= _MOST_CHARACTERS:
        return words
    cut = words[:_MOST_CHARACTERS].rpartition(" ")[0]
    return cut or words[:_MOST_CHARACTERS]


def _order_by_place(values: list[_Named], sentence: str) -> list[_Named]:
    """Return those of the values that the sentence has as whole words, by their place in it."""
    text, positions = " ".join(sentence.split()), dict[_Named, int]()
    for value in values:
        word = value[1]
        at = text.find(word)  # to compile a pattern would take longer
        while at >= 0 and _OF_WORD.search(
            text[at - 1 : at] + text[at + len(word) : at + len(word) + 1]
        ):
            at = text.find(word, at + 1)
        if at >= 0:
            positions[value] = at
    return sorted(positions, key=positions.__getitem__)


def _fold_text(text: str) -> str:
    return " ".join(normalize("NFC", text).casefold().split())
