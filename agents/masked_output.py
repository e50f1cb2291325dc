"""Masks credentials in what this process logs and prints: a tool, or a library that it calls, may write one.

A credential is masked in each of its forms, from the call that first has it. One is not that is written in pieces, in
another encoding, to a file, or past Python's own output.
"""

import logging
from collections.abc import Iterable
from threading import Lock
from typing import Any, TextIO

REDACTED = "••••"  # shown in place of a secret
MAX_FORMS = 1_000  # the oldest are forgotten: tokens are replaced every hour
MIN_LENGTH = 4  # a shorter text is in too many words

_lock = Lock()
_forms: dict[str, None] = {}  # the oldest first
_longest_first: tuple[str, ...] = ()


def remember(forms: Iterable[str]) -> None:
    """Mask these texts from now on."""
    global _longest_first
    new = [form for form in forms if len(form) >= MIN_LENGTH and form not in _forms]
    if not new:
        return
    with _lock:
        _forms.update(dict.fromkeys(new))
        for form in list(_forms)[:-MAX_FORMS]:
            del _forms[form]
        _longest_first = tuple(sorted(_forms, key=len, reverse=True))


def mask(text: str) -> str:
    """Return the text with each known credential masked."""
    for form in _longest_first:
        text = text.replace(form, REDACTED)
    return text


class MaskedFormatter(logging.Formatter):
    """Masks credentials in a line of the log, its traceback included."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the masked line."""
        return mask(super().format(record))


class MaskedStream:
    """A text stream that masks credentials in its text."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write the masked text. Return the length of the text."""
        self._stream.write(mask(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write the masked texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the stream."""
        return getattr(self._stream, name)
