"""Finds look-alike letters: mixed alphabets, digits for letters in host names, punycode, user names in URLs.

A text in one alphabet is not reported, nor are words of different alphabets beside each other.
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from runtime.core.values.texts import is_visible

MAX_NOTES = 5
MAX_CHARACTERS = 20_000  # of one value, to keep pages fast

_LATIN = {
    # Cyrillic
    **dict(
        zip(
            "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0455\u0456\u0458\u04bb\u0501\u051b\u051d\u04cf\u0475\u043a",
            "aeopcyxsijhdqwlvk",
            strict=True,
        )
    ),
    **dict(
        zip(
            "\u0410\u0412\u0415\u0405\u0406\u0408\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0423\u0425\u051a\u051c\u0474\u04c0",
            "ABESIJKMHOPCTYXQWVI",
            strict=True,
        )
    ),
    # Greek
    **dict(
        zip(
            "\u03b1\u03bf\u03bd\u03c1\u03c5\u03b9\u03ba\u03b3\u03c7",
            "aovpuikyx",
            strict=True,
        )
    ),
    **dict(
        zip(
            "\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7",
            "ABEZHIKMNOPTYX",
            strict=True,
        )
    ),
    # Armenian
    **dict(zip("\u0585\u0578\u057d\u0570\u0581\u0566", "onuhgq", strict=True)),
    # Cherokee
    **dict(
        zip(
            "\u13aa\u13df\u13ac\u13bb\u13ab\u13e6\u13de\u13b7\u13e2\u13da\u13a2\u13b3\u13c3",
            "ACEHJKLMPSTWZ",
            strict=True,
        )
    ),
}
_ALPHABETS = ("Latin", "Cyrillic", "Greek", "Armenian", "Cherokee", "Coptic")
_DOMAINS = "com|org|net|edu|gov|info|biz|io|app|dev|ai|co|eu|uk|de|fr|nl|ch|at|it|es|us|ca|au|jp|in"

_SAME = str.maketrans({"0": "o", "O": "o", "1": "l", "I": "l", "|": "l"})
_USER_NAME = re.compile(r"://([^\s/?#@]+)@([^\s/?#]+)")
_CHUNK = re.compile(r"[^\s\"'<>(),;{}\[\]\u201c\u201d]+")
_WORD = re.compile(r"\w+")
_DIGITS = re.compile(r"(?<=[a-z])(?:[01]+(?=[a-z])|[01](?![\w]))", re.IGNORECASE)
_HOST = re.compile(
    r"(?:(?<=@)|(?<=//))(?:[\w-]+\.)+[\w-]{2,}"
    rf"|(?<![\w.@/-])(?:[\w-]+\.)+(?:{_DOMAINS})(?![\w.-]|@)",
    re.IGNORECASE,
)


def describe(*values: Any, limit: int = MAX_CHARACTERS) -> list[str]:
    """Describe the look-alikes in JSON values, one sentence each, at most MAX_NOTES.

    Only the first `limit` characters of each value are checked; if a value is longer, the last sentence says so.
    """
    descriptions: dict[str, None] = {}
    cut = False
    for value in values:
        remaining = limit
        for text in collect_texts(value):
            cut = cut or len(text) > remaining
            descriptions.update(dict.fromkeys(_describe_text(text[:remaining])))
            remaining -= min(remaining, len(text))
    notes = list(descriptions)[:MAX_NOTES]
    if len(descriptions) > MAX_NOTES:
        notes.append(f"And {len(descriptions) - MAX_NOTES} more like these.")
    if notes and cut:
        notes.append(f"Only the first {limit} characters were checked.")
    return notes


@lru_cache(maxsize=4096)
def compute_skeleton(text: str, *, host: bool = False) -> str:
    """Return a text that is the same for texts that look alike: Latin letters only, without hidden characters.

    In a `host`, punycode is decoded, and `rn` looks like `m`.
    """
    if host:
        text = ".".join(_decode_label(label) for label in text.split("."))
    letters = (
        _LATIN.get(char) or _find_plain_char(char) or char for char in text if is_visible(char)
    )
    plain = "".join(letters).translate(_SAME).casefold()
    return plain.replace("rn", "m").replace("vv", "w") if host else plain


def _decode_label(label: str) -> str:
    if not label.startswith("xn--"):
        return label
    try:
        return label[4:].encode("ascii").decode("punycode")
    except (UnicodeError, ValueError):
        return label


def collect_texts(value: Any) -> Iterator[str]:
    """Yield every text in a JSON value, the names of its fields included."""
    match value:
        case str():
            yield value
        case list() | tuple():
            for item in value:
                yield from collect_texts(item)
        case dict():
            for name, item in value.items():
                yield str(name)
                yield from collect_texts(item)


def _describe_text(text: str) -> Iterator[str]:
    lowered = text.lower()
    if not text.isascii():
        yield from _describe_words(text)
    if "xn--" in lowered:
        yield from _describe_punycode(text)
    if "0" in text or "1" in text:
        yield from _describe_digits(text)
    if "://" in text and "@" in text:
        for name, leads in _USER_NAME.findall(text):
            yield (
                f"\u201c{name[:80]}@{leads[:80]}\u201d leads to {leads[:80]}: the part before the @ is only a"
                " user name."
            )


def _describe_words(text: str) -> Iterator[str]:
    disguised: set[str] = (
        set()
    )  # foreign alphabets whose letters in a Latin text all look like Latin ones
    if any(char.isascii() and char.isalpha() for char in text):
        letters = {char for char in set(text) if _name_script(char) not in ("", "Latin")}
        honest = {_name_script(char) for char in letters if char not in _LATIN}
        disguised = {_name_script(char) for char in letters} - honest
    for match in _CHUNK.finditer(text):
        chunk = match[0].strip(".:!?")
        if chunk.isascii():
            continue
        for word in _WORD.findall(chunk):
            if word.isascii():
                continue
            note = _describe_mixed_word(word) or _describe_disguised_word(word, chunk, disguised)
            if note and "." in chunk:
                encoded = word.lower().encode("punycode").decode("ascii")
                note += f"; in a domain name it is xn--{encoded[:80]}"
            if note:
                yield f"\u201c{chunk[:80]}\u201d {note}."


def _describe_mixed_word(word: str) -> str:
    """Describe alphabets mixed within one word."""
    scripts = {script for char in word if (script := _name_script(char))}
    foreign = sorted({char for char in word if _name_script(char) not in ("", "Latin")})
    if len(scripts) > 1:
        return f"mixes {' and '.join(sorted(scripts, reverse=True))} letters: {_describe_letters(foreign)}"
    styled = sorted({char for char in word if _find_plain_char(char)})
    if styled and any(char.isascii() and char.isalnum() for char in word):
        return f"holds {_describe_letters(styled)}"
    return ""


def _describe_disguised_word(word: str, chunk: str, disguised: set[str]) -> str:
    """Describe a word of another alphabet whose letters all look like Latin ones."""
    scripts = {_name_script(char) for char in word if char.isalpha()}
    if len(scripts) != 1 or "Latin" in scripts or "" in scripts or len(word) < 2:
        return ""
    if not all(char in _LATIN for char in word if char.isalpha()):
        return ""
    in_address = "." in chunk and any(char.isascii() and char.isalpha() for char in chunk)
    (script,) = scripts
    if in_address or script in disguised:
        look = "".join(_LATIN.get(char, char) for char in word)
        return f"is written in {script} letters that look like \u201c{look}\u201d"
    return ""


def _describe_punycode(text: str) -> Iterator[str]:
    for label in re.findall(r"(?<![\w-])xn--[a-z0-9-]+", text, re.IGNORECASE):
        try:
            plain = label[4:].encode("ascii").decode("punycode")
        except (UnicodeError, ValueError):
            yield f"\u201c{label[:80]}\u201d looks like punycode but is not valid."
            continue
        mixed = _describe_mixed_word(plain) or _describe_disguised_word(
            plain, f"{plain}.com", set()
        )
        yield f"\u201c{label[:80]}\u201d is punycode for \u201c{plain[:80]}\u201d{f', which {mixed}' if mixed else ''}."


def _describe_digits(text: str) -> Iterator[str]:
    """Check only the registered label of a host name: server1.example.org is harmless."""
    for match in _HOST.finditer(text):
        labels = match[0].split(".")
        digits = sorted(set("".join(_DIGITS.findall(labels[-2]))))
        if digits:
            names = " and ".join(
                f"the digit {digit}, which looks like the letter {'l' if digit == '1' else 'o'}"
                for digit in digits
            )
            yield f"\u201c{match[0][:80]}\u201d has {names}."


def _describe_letters(chars: list[str]) -> str:
    descriptions = []
    for char in chars[:3]:
        words = unicodedata.name(char, "a letter").split()
        titles = [word.title() if word.title() in _ALPHABETS else word.lower() for word in words]
        description = f"\u201c{char}\u201d is {' '.join(titles)} (U+{ord(char):04X})"
        if look := _LATIN.get(char) or _find_plain_char(char):
            description += f" and looks like \u201c{look}\u201d"
        descriptions.append(description)
    return ", ".join(descriptions)


@lru_cache(maxsize=4096)
def _name_script(char: str) -> str:
    """Return the alphabet of a letter; empty if it resembles no letter of another alphabet."""
    if not char.isalpha():
        return ""
    script = unicodedata.name(char, "").partition(" ")[0].title()
    if script not in _ALPHABETS or (script == "Greek" and char not in _LATIN):
        return ""  # such as the letters for a difference, or for a millionth
    return script


@lru_cache(maxsize=4096)
def _find_plain_char(char: str) -> str:
    """Return the ASCII letter or digit of which this is a variant, such as a fullwidth one; empty for none."""
    if char.isascii() or unicodedata.category(char) not in ("Ll", "Lu", "Nd"):
        return ""
    plain = unicodedata.normalize("NFKC", char)
    return plain if len(plain) == 1 and plain.isascii() and plain.isalnum() else ""
