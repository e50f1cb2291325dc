"""Secret values as people may see them: a placeholder, whoever asks and through whichever door.

A secret is stored as `{"$secret": "<key id>:<token>"}`. The token is of no use without its key, but
what nobody can read here nobody can carry off either. A model or an error may have repeated one inside
a text, so texts are searched too.
"""

import re
from dataclasses import replace
from typing import Any

from runtime.core.events import Stored

PLACEHOLDER = "••••"

_MARK = "$secret"
# In a text, as JSON or as Python writes it; `quote` has a backslash for each text it is nested in.
_WRITTEN = re.compile(
    r"""\{\s*(?P<quote>\\*["'])\$secret(?P=quote)\s*:\s*(?P=quote)[^"'\\]*(?P=quote)\s*\}"""
)
# A text that was cut off inside the token.
_CUT_OFF = re.compile(r"""(?P<start>\$secret\\*["']\s*:\s*\\*["'])[^"'\\]+""")


def masked(value: Any) -> Any:
    """The same JSON value, or reference to one, with a placeholder for each secret in it."""
    match value:
        case str():
            return _without(value)
        case list() | tuple():
            return [masked(item) for item in value]
        case Stored():
            return replace(value, preview=_without(value.preview))
        case dict() if _MARK in value:
            return PLACEHOLDER
        case dict():
            return {_without(str(key)): masked(item) for key, item in value.items()}
        case _:
            return value


def has_secret(value: Any) -> bool:
    """Whether any part of a JSON value is a secret, or a text that repeats one."""
    return bool(masked(value) != value)


def _without(text: str) -> str:
    if _MARK not in text:
        return text
    text = _WRITTEN.sub(rf"\g<quote>{PLACEHOLDER}\g<quote>", text)
    return _CUT_OFF.sub(rf"\g<start>{PLACEHOLDER}", text)
