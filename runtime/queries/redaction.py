"""Secret values as people may see them: a placeholder, whoever asks and through whichever door.

A token is of no use without its key, but a token that is not shown cannot be copied. An error may
have repeated one inside a text, so texts are searched too. Only what our own sealing made is hidden, and no more
than the token: anything else that calls itself a secret is shown in full. So is a token without a tag, as releases
before made them, and one that was cut off: what is shown is ciphertext. The arguments that people decide on
go through `runtime.keyring.sealing.masked_args`, which knows their place and opens what it hides.
"""

import re
from dataclasses import replace
from typing import Any

from runtime.core.events import Stored
from runtime.keyring.sealing import MARK, PLACEHOLDER, was_made_here

# In a text, as JSON or as Python writes it; `quote` has a backslash for each text it is nested in.
_WRITTEN = re.compile(
    r"""\{\s*(?P<quote>\\*["'])\$secret(?P=quote)\s*:\s*(?P=quote)(?P<token>[^"'\\]*)(?P=quote)\s*\}"""
)


def redacted(value: Any) -> Any:
    """The same JSON value, or reference to one, with a placeholder for each secret in it."""
    match value:
        case str():
            return _without(value)
        case list() | tuple():
            return [redacted(item) for item in value]
        case Stored():
            return replace(value, preview=_without(value.preview))
        case dict() if was_made_here(value):
            return PLACEHOLDER
        case dict():
            return {_without(str(key)): redacted(item) for key, item in value.items()}
        case _:
            return value


def _without(text: str) -> str:
    return _WRITTEN.sub(_hide, text) if MARK in text else text


def _hide(found: re.Match[str]) -> str:
    quote = found["quote"]
    return f"{quote}{PLACEHOLDER}{quote}" if was_made_here({MARK: found["token"]}) else found[0]
