"""Seals what only reviewers may read until it is released: arguments of a call, and texts beside it.

A held value is sealed as a secret is, for a place of its own. So every page and answer hides it, except for the
reviewers of a request.
"""

import json
from typing import Any

from runtime.errors import KeyMissing
from runtime.keyring import sealing
from runtime.keyring.sealing import HELD, MARK, NotOurs

_TEXT = sealing.place("", HELD)


def args(tool: str, given: Any) -> frozenset[str]:
    """Return the names of the arguments that are held for exactly their place."""
    if not isinstance(given, dict):
        return frozenset()
    values = [(name, value) for name, value in given.items() if isinstance(value, dict)]
    return frozenset(name for name, value in values if sealing.is_held(tool, name, value))


def seal_arg(tool: str, name: str, value: Any) -> dict[str, str]:
    """Seal an argument in its place."""
    return sealing.seal(value, sealing.place(tool, HELD, name))


def seal_all(tool: str, given: Any) -> dict[str, str]:
    """Seal all arguments of a call as one value."""
    return sealing.seal(given, sealing.place(tool, "args"))


def open_all(tool: str, given: Any) -> Any:
    """Return arguments that were sealed as one value, opened; any others as they are. Raise KeyMissing."""
    if not sealing.is_sealed(given):
        return given
    try:
        return sealing.unseal(given, sealing.place(tool, "args"))
    except NotOurs:
        return given


def opened_args(tool: str, given: Any) -> Any:
    """Return the arguments of a call as its reviewers read them: held ones opened, secret ones as a placeholder."""
    shown, held = sealing.redacted_args(tool, given), args(tool, given)
    if not held:
        return shown
    opened = {
        name: sealing.unseal(given[name], sealing.place(tool, HELD, name)) for name in sorted(held)
    }
    return {**shown, **opened}


def sealed_text(text: str, most: int | None = None) -> str:
    """Return the text sealed, as text. It is cut if the sealed text would have more than `most` characters."""
    if not text:
        return ""
    found = json.dumps(sealing.seal(text, _TEXT))
    while most is not None and len(found) > most:
        text = text[: len(text) * most // len(found) - 1]
        found = json.dumps(sealing.seal(text, _TEXT))
    return found


def open_text(text: str) -> str:
    """Return the opened text; any other text as it is. Raise NotOurs or KeyMissing."""
    sealed = _token_in(text)
    return str(sealing.unseal(sealed, _TEXT)) if sealing.was_made_here(sealed) else text


def is_token(value: Any) -> bool:
    """Tell whether a text, or all arguments of a call, are a value that was sealed here and would be opened."""
    return sealing.was_made_here(_token_in(value) if isinstance(value, str) else value)


def shown_text(text: str) -> str:
    """Return the text as reviewers read it: opened if it is held, else as it is."""
    try:
        return open_text(text)
    except (NotOurs, KeyMissing):
        return text


def _token_in(text: str) -> Any:
    """Return the token that is the whole text, genuine or not; None if it is another text."""
    if not text.startswith(f'{{"{MARK}"'):
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None
