"""Names the object of a high-risk call. A person who approves the call repeats this name, which takes a second step."""

import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final
from unicodedata import normalize

from approvals import policy
from approvals.models import Request
from runtime.core.enums import GateKind
from runtime.keyring import sealing

_MOST_CHARACTERS: Final = 32
_MOST_VALUES: Final = 200  # of the arguments, that are looked at
_ID: Final = re.compile(r"[0-9a-f-]{16,}|\S{24,}", re.IGNORECASE)  # hardly read, and hardly typed


def required(row: Request) -> str | None:
    """Return the name that an approval of this request must repeat; None if it needs no second step."""
    if row.kind != GateKind.APPROVAL or row.risk in policy.UNDOABLE:
        return None
    try:
        args = sealing.redacted_args(row.tool, json.loads(row.args))
    except (ValueError, RecursionError):  # tampered with: it cannot be decided
        args = None
    return object_of(row.tool, row.sentence, args)


def object_of(tool: str, sentence: str, args: Any) -> str:
    """Return the argument that tells most: the first text in the sentence, else a number in it, else another text.

    Without one that a person can read and type, it is the name of the tool.
    """
    texts, numbers = list[str](), list[str]()
    for value in islice(_leaves(args), _MOST_VALUES):
        if isinstance(value, str):
            texts.append(value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            numbers.append(json.dumps(value))
    short = [_short(text) for text in texts if _is_typeable(text)]
    for found in (_in_order(short, sentence), _in_order(numbers, sentence)):
        if found:
            return found[0]
    others = [text for text in short if not _ID.fullmatch(text)]
    return others[0] if others else tool


def matches(given: str, name: str) -> bool:
    """Tell whether a person typed this name. Case and the width of spaces do not count; look-alike letters do."""
    return _folded(given) == _folded(name)


def _leaves(value: Any) -> Iterator[Any]:
    match value:
        case dict() if sealing.MARK not in value:
            for inner in value.values():
                yield from _leaves(inner)
        case list():
            for inner in value:
                yield from _leaves(inner)
        case str() | int() | float():
            yield value
        case _:
            return


def _is_typeable(text: str) -> bool:
    """Tell whether all characters can be seen, and at least one is a letter or a digit."""
    seen = text.isprintable() and any(char.isalnum() for char in text)
    return seen and text != sealing.REDACTED


def _short(text: str) -> str:
    """Shorten a long text after a word."""
    words = " ".join(text.split())
    if len(words) <= _MOST_CHARACTERS:
        return words
    cut = words[:_MOST_CHARACTERS].rpartition(" ")[0]
    return cut or words[:_MOST_CHARACTERS]


def _in_order(values: list[str], sentence: str) -> list[str]:
    """Return those of the values that the sentence has as whole words, by their place in it."""
    text = " ".join(sentence.split())
    found = {
        value: place.start()
        for value in values
        if (place := re.search(rf"(?<!\w){re.escape(value)}(?!\w)", text))
    }
    return sorted(found, key=lambda value: found[value])


def _folded(text: str) -> str:
    return " ".join(normalize("NFC", text).casefold().split())
