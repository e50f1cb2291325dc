"""Texts for readers and journals: characters that cannot be seen or stored, and the `{name}` that are filled in.

Pages, sentences and the API write such a character as its code point. Double braces stand for braces.
"""

import json
import re
import unicodedata
from collections.abc import Mapping
from functools import lru_cache
from string import Formatter
from typing import Any

from runtime.core.values.limits import MAX_ERROR

# Cn and Co stay unmarked: the assigned characters change with the Unicode version.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
# Letters by category, but invisible: combining joiner, Hangul, Khmer and Mongolian fillers, blank braille.
_FILLERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0")
MAX_MARKS = 4  # on one letter; more are drawn over each other
_SELECTORS = (range(0xFE00, 0xFE10), range(0xE0100, 0xE01F0))
# Invisible although `str.isprintable` calls them printable.
_PRINTABLE = re.compile(f"[{''.join(sorted(_FILLERS))}\ufe00-\ufe0f\U000e0100-\U000e01ef]")

# Joined emoji that keyboards write and fonts draw as one: families, couples, and people at work.
_JOINER = "\u200d"
_ADULT = "[\U0001f468\U0001f469\U0001f9d1]"
_SKIN = "[\U0001f3fb-\U0001f3ff]?"
_PARENTS = "(?:\U0001f468(?:\u200d[\U0001f468\U0001f469])?|\U0001f469(?:\u200d\U0001f469)?)"
_CHILDREN = "\u200d(?:\U0001f467(?:\u200d[\U0001f466\U0001f467])?|\U0001f466(?:\u200d\U0001f466)?)"
_COUPLE = f"{_ADULT}{_SKIN}\u200d\u2764\ufe0f\u200d(?:\U0001f48b\u200d)?{_ADULT}{_SKIN}"
_WORK = (
    "(?:[\U0001f33e\U0001f373\U0001f393\U0001f3a4\U0001f3a8\U0001f3eb\U0001f3ed\U0001f4bb\U0001f4bc\U0001f527"
    "\U0001f52c\U0001f680\U0001f692]|[\u2695\u2696\u2708]\ufe0f)"
)
_EMOJI = re.compile(
    rf"(?<!\u200d)(?:{_PARENTS}{_CHILDREN}|{_COUPLE}|{_ADULT}{_SKIN}\u200d{_WORK})(?![\u200d\ufe0f\U0001f3fb-\U0001f3ff])"
)


def find_joined_emoji(text: str) -> frozenset[int]:
    """Return the places of the invisible characters that only join one emoji of a family, a couple or a worker."""
    if _JOINER not in text:
        return frozenset()
    return frozenset(
        at
        for match in _EMOJI.finditer(text)
        for at in range(match.start(), match.end())
        if not is_visible(text[at])
    )


def is_visible(char: str) -> bool:
    """Tell whether a reader sees this character in a text: a letter, a plain space or a line break."""
    if char == "\n" or " " <= char <= "~":
        return True
    category = unicodedata.category(char)
    if category in _HIDDEN or category == "Zs" or char in _FILLERS:
        return False
    return not any(ord(char) in selectors for selectors in _SELECTORS)


def find_hidden_marks(text: str) -> frozenset[int]:
    """Return the places of marks that a reader does not see: all but the first four on a letter (UTS 39, 5.4)."""
    places, marks = set(), 0
    for at, char in enumerate("" if text.isascii() else text):
        marks = marks + 1 if unicodedata.category(char) in ("Mn", "Me") else 0
        if marks > MAX_MARKS:
            places.add(at)
    return frozenset(places)


def format_code_point(char: str) -> str:
    """Write the code point of a character in the one notation of all pages: ⟦U+200B⟧."""
    return f"⟦U+{ord(char):04X}⟧"


@lru_cache(maxsize=1024)
def name_char(char: str) -> str:
    """Return the name of a character in Unicode, in small letters."""
    return unicodedata.name(char, "control character").lower()


def write_on_one_line(text: str) -> str:
    """Return the text with the code point in place of each character that is not seen, and of line breaks."""
    if text.isprintable() and not _PRINTABLE.search(text):
        return text
    return "".join(
        char if is_visible(char) and char != "\n" else format_code_point(char) for char in text
    )


def find_placeholders(text: str) -> set[str]:
    """Return the names in a text. Raise ValueError unless each is a bare `{name}`."""
    names = set()
    for _, name, spec, conversion in Formatter().parse(text):
        if name is None:
            continue
        if spec or conversion or not name.isidentifier():
            raise ValueError(f"{{{name}}} is not the bare name of an argument")
        names.add(name)
    return names


def fill_placeholders(text: str, values: Mapping[str, Any]) -> str:
    """Return the text with its names replaced: a text as it is, another value as JSON. Raise KeyError for a name."""
    parts = []
    for before, name, _, _ in Formatter().parse(text):
        parts.append(before)
        if name is not None:
            value = values[name]
            parts.append(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    return "".join(parts)


def escape_text(text: str) -> str:
    """Return text that any journal accepts: NUL and lone surrogates are escaped."""
    clean = text.replace("\x00", "\\0")
    return clean.encode("utf-8", "backslashreplace").decode()


def clean_text(text: str) -> str:
    """Return text that any journal accepts, at most MAX_ERROR characters of it."""
    clean = escape_text(text[: MAX_ERROR + 1])
    return clean if len(clean) <= MAX_ERROR else clean[: MAX_ERROR - 1] + "…"
