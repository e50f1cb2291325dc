"""Characters that cannot be seen in a text or that move others, and how pages, sentences and the API write them."""

import unicodedata
from functools import lru_cache

# Cn and Co stay unmarked: the assigned characters change with the Unicode version.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
# Letters by category, but invisible: combining joiner, Hangul, Khmer and Mongolian fillers, blank braille.
_FILLERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0")
_SELECTORS = (range(0xFE00, 0xFE10), range(0xE0100, 0xE01F0))


def shows(char: str) -> bool:
    """Tell whether a reader sees this character in a text: a letter, a plain space or a line break."""
    if char == "\n" or " " <= char <= "~":
        return True
    category = unicodedata.category(char)
    if category in _HIDDEN or category == "Zs" or char in _FILLERS:
        return False
    return not any(ord(char) in selectors for selectors in _SELECTORS)


def code(char: str) -> str:
    """Write the code point of a character in the one notation of all pages: ⟦U+200B⟧."""
    return f"⟦U+{ord(char):04X}⟧"


@lru_cache(maxsize=1024)
def name(char: str) -> str:
    """Return the name of a character in Unicode, in small letters."""
    return unicodedata.name(char, "control character").lower()


def on_one_line(text: str) -> str:
    """Return the text with the code point in place of each character that is not seen, and of line breaks."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if shows(char) and char != "\n" else code(char) for char in text)
