"""Secret values as people may see them: a placeholder, whoever asks and through whichever door.

A token is of no use without its key, but a token that is not shown cannot be copied. An error may
have repeated one inside a text, so texts are searched too. Only the form of our tokens is hidden, and no more
than the token: anything else that calls itself a secret is shown in full. The arguments that people decide on
go through `runtime.sealing.masked_args`, which opens what it hides.
"""

import re
from dataclasses import replace
from typing import Any

from runtime.core.events import Stored
from runtime.sealing import MARK, PLACEHOLDER, is_sealed, may_be_token, may_start_token

# In a text, as JSON or as Python writes it; `quote` has a backslash for each text it is nested in.
_WRITTEN = re.compile(
    r"""\{\s*(?P<quote>\\*["'])\$secret(?P=quote)\s*:\s*(?P=quote)(?P<token>[^"'\\]*)(?P=quote)\s*\}"""
)
# A text that was cut off inside the token.
_CUT_OFF = re.compile(r"""(?P<start>\$secret\\*["']\s*:\s*\\*["'])(?P<token>[^"'\\…]+)(?=…?$)""")


def masked(value: Any) -> Any:
    """The same JSON value, or reference to one, with a placeholder for each secret in it."""
    match value:
        case str():
            return _without(value)
        case list() | tuple():
            return [masked(item) for item in value]
        case Stored():
            return replace(value, preview=_without(value.preview))
        case dict() if is_sealed(value) and may_be_token(value[MARK]):
            return PLACEHOLDER
        case dict():
            return {_without(str(key)): masked(item) for key, item in value.items()}
        case _:
            return value


def _without(text: str) -> str:
    if MARK not in text:
        return text
    return _CUT_OFF.sub(_hide_start, _WRITTEN.sub(_hide, text))


def _hide(found: re.Match[str]) -> str:
    quote = found["quote"]
    return f"{quote}{PLACEHOLDER}{quote}" if may_be_token(found["token"]) else found[0]


def _hide_start(found: re.Match[str]) -> str:
    return found["start"] + PLACEHOLDER if may_start_token(found["token"]) else found[0]
