"""Finds characters of a value that cannot be seen, or that look like others. Needs no history."""

import unicodedata
from collections.abc import Iterator
from typing import Any

from approvals.rules.argument_paths import WHOLE, ArgumentPath
from approvals.rules.oddity import Oddity, OddityKind, oddity
from runtime.core.values import lookalikes
from runtime.core.values import texts as invisible

MAX_CHARACTERS = 100_000  # of one call
NAMED = 3

_ORDINARY = frozenset("\t\r\n")  # in texts of several lines
_EMOJI_STYLE, _JOINER = "\ufe0f", "\u200d"
_KEYCAP = "\u20e3"


def find(args: Any, *, most: int = MAX_CHARACTERS) -> Iterator[Oddity]:
    """List the odd characters of each argument, within the first `most` characters of all."""
    named = args if isinstance(args, dict) else {WHOLE: args}
    for name, value in named.items():
        place = ArgumentPath((str(name),))
        texts = list(_cut(lookalikes.texts_of([name, value]), most))
        most -= sum(map(len, texts))
        hidden = dict.fromkeys(char for text in texts for char in _hidden(text))
        if hidden:
            told = ", ".join(
                f"{invisible.code_point(char)} {invisible.character_name(char)}"
                for char in list(hidden)[:NAMED]
            )
            more = f" and {len(hidden) - NAMED} more" if len(hidden) > NAMED else ""
            text = f"Contains invisible characters: {told}{more}."
            yield oddity(place, OddityKind.INVISIBLE, "invisible characters", text)
        for note in lookalikes.describe(texts, most=MAX_CHARACTERS):
            yield oddity(place, OddityKind.LETTERS, "look-alike letters", note)


def _cut(texts: Iterator[str], most: int) -> Iterator[str]:
    for text in texts:
        if most <= 0:
            return
        yield text[:most]
        most -= len(text)


def _hidden(text: str) -> Iterator[str]:
    if text.isascii() and text.isprintable():
        return
    for at, char in enumerate(text):
        if not invisible.is_visible(char) and char not in _ORDINARY and not _is_emoji(text, at):
            yield char


def _is_emoji(text: str, at: int) -> bool:
    """Tell whether this character only joins or styles emoji, as a keyboard writes them."""
    if text[at] == _EMOJI_STYLE:
        return _is_symbol(text[at - 1 : at]) or text[at + 1 : at + 2] == _KEYCAP
    before = text[:at].rstrip(_EMOJI_STYLE)[-1:] if text[at] == _JOINER else ""
    return _is_symbol(before) and _is_symbol(text[at + 1 : at + 2])


def _is_symbol(char: str) -> bool:
    return char != "" and unicodedata.category(char) in ("So", "Sk", "Sm")
