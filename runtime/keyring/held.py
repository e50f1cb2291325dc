"""Seals what only reviewers may read until it is released: arguments of a call, and the texts shown with it.

A held value is sealed like a secret, but for a location of its own. Every page and answer hides it, except from the
reviewers of the request.
"""

import json
from typing import Any

from runtime.errors import KeyMissing
from runtime.keyring import sealing
from runtime.keyring.sealing import HELD, MARK, NotOurs

_TEXT = sealing.encode_location("", HELD)


def args(tool: str, arguments: Any) -> frozenset[str]:
    """Return the names of the arguments that were held for exactly their location."""
    if not isinstance(arguments, dict):
        return frozenset()
    values = [(name, value) for name, value in arguments.items() if isinstance(value, dict)]
    return frozenset(name for name, value in values if sealing.is_held(tool, name, value))


def seal_arg(tool: str, name: str, value: Any) -> dict[str, str]:
    """Seal an argument for its location."""
    return sealing.seal(value, sealing.encode_location(tool, HELD, name))


def seal_all(tool: str, arguments: Any) -> dict[str, str]:
    """Seal all arguments of a call as one value."""
    return sealing.seal(arguments, sealing.encode_location(tool, "args"))


def open_all(tool: str, arguments: Any) -> Any:
    """Open arguments that were sealed as one value; return any others unchanged. Raise KeyMissing."""
    if not sealing.is_sealed(arguments):
        return arguments
    try:
        return sealing.unseal(arguments, sealing.encode_location(tool, "args"))
    except NotOurs:
        return arguments


def opened_args(tool: str, arguments: Any) -> Any:
    """Return the arguments of a call as its reviewers read them: held ones opened, secret ones as a placeholder."""
    redacted, held_names = sealing.redacted_args(tool, arguments), args(tool, arguments)
    if not held_names:
        return redacted
    unsealed = {
        name: sealing.unseal(arguments[name], sealing.encode_location(tool, HELD, name))
        for name in sorted(held_names)
    }
    return {**redacted, **unsealed}


def sealed_text(text: str, max_characters: int | None = None) -> str:
    """Return the sealed text. Cut the text first if its sealed form would have more than `max_characters`."""
    if not text:
        return ""
    token = json.dumps(sealing.seal(text, _TEXT))
    while max_characters is not None and len(token) > max_characters:
        text = text[: len(text) * max_characters // len(token) - 1]
        token = json.dumps(sealing.seal(text, _TEXT))
    return token


def open_text(text: str) -> str:
    """Open a sealed text; return any other text unchanged. Raise NotOurs or KeyMissing."""
    sealed = _token_in(text)
    return str(sealing.unseal(sealed, _TEXT)) if sealing.was_made_here(sealed) else text


def is_token(value: Any) -> bool:
    """Return whether a text, or all arguments of a call, are a value that was sealed here and would be opened."""
    return sealing.was_made_here(_token_in(value) if isinstance(value, str) else value)


def shown_text(text: str) -> str:
    """Return the text as reviewers read it: opened if it is held, else unchanged."""
    try:
        return open_text(text)
    except (NotOurs, KeyMissing):
        return text


def _token_in(text: str) -> Any:
    """Parse a text that is a token, genuine or not. Return None for any other text."""
    if not text.startswith(f'{{"{MARK}"'):
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None
