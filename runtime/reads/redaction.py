"""Replaces secret values with a placeholder, on every page and in every answer.

A token is useless without its key, but a hidden token cannot be copied. An error text may quote a token, so texts
are searched too. Only tokens made by `runtime.keyring.sealing` are hidden. Other values that look like secrets are
shown in full, as are truncated tokens, which are ciphertext. Arguments for reviewers go through
`runtime.keyring.sealing.redact_args`, which knows their place and decrypts hidden ones.
"""

import re
from dataclasses import replace
from typing import Any

from runtime.core.run.events import BlobRef
from runtime.keyring.sealing import MARK, REDACTED, was_made_here

# In a text, as JSON or as Python writes it; `quote` has a backslash for each text it is nested in.
_WRITTEN = re.compile(
    r"""\{\s*(?P<quote>\\*["'])\$secret(?P=quote)\s*:\s*(?P=quote)(?P<token>[^"'\\]*)(?P=quote)\s*\}"""
)


def redact(value: Any) -> Any:
    """Return the JSON value, or the reference to one, with a placeholder for each secret."""
    match value:
        case str():
            return _without(value)
        case list() | tuple():
            return [redact(item) for item in value]
        case BlobRef():
            return replace(value, preview=_without(value.preview))
        case dict() if was_made_here(value):
            return REDACTED
        case dict():
            return {_without(str(key)): redact(item) for key, item in value.items()}
        case _:
            return value


def _without(text: str) -> str:
    return _WRITTEN.sub(_hide, text) if MARK in text else text


def _hide(match: re.Match[str]) -> str:
    quote = match["quote"]
    return f"{quote}{REDACTED}{quote}" if was_made_here({MARK: match["token"]}) else match[0]
