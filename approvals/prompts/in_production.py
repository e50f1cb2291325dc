"""Finds the version of a prompt that was in production at a time; workers ask when an agent begins."""

import threading
from datetime import datetime
from typing import Final

from approvals import clock
from approvals.errors import UnknownPrompt
from approvals.models import PromptAct
from approvals.prompts import acts
from approvals.prompts.acts import PromptBroken, PromptHistory
from runtime.ports.prompts import PromptVersion
from runtime.store import pool

_COUNT: Final = "SELECT count(*) FROM approvals_promptact WHERE name = %(name)s"
# Waits for changes under way: an act has its time before other connections see it.
_WAIT: Final = "SELECT pg_advisory_xact_lock_shared(hashtextextended('approvals_promptact', 0))"

_lock = threading.Lock()
_known: dict[str, tuple[PromptAct, ...]] = {}  # verified acts, by the name of the prompt


class StoredPrompts:
    """Implements the port Prompts with the signed acts."""

    def in_production(self, name: str, at: datetime) -> PromptVersion | None:
        """Return the version that was in production at this time, None for the text in the code. Raise PromptBroken."""
        with pool.in_transaction() as connection:
            pool.row(connection, _WAIT, {})
        found = acts.history(_acts(name), name, at)
        return _version(found, found.in_production)

    def version(self, name: str, number: int) -> PromptVersion | None:
        """Return a version by its number, None for the text in the code. Raise PromptBroken or UnknownPrompt."""
        return _version(acts.history(_acts(name), name, clock.now()), number)


def problem_of(name: str, number: int, digest: str) -> str | None:
    """Say why a version is not the signed text with this digest; None if it is. The text in the code is not stored."""
    if number == acts.CODE:
        return None
    try:
        found = acts.history(acts.read(name).get(name, ()), name, clock.now())
    except PromptBroken as exc:
        return str(exc)
    if number not in found.versions:
        return "there is no such version"
    return None if found.versions[number].digest == digest else "it has another text"


def _version(found: PromptHistory, number: int) -> PromptVersion | None:
    if number == acts.CODE:
        return None
    if number not in found.versions:
        raise UnknownPrompt
    one = found.versions[number]
    return PromptVersion(name=found.name, number=number, text=one.text, digest=one.digest)


def _acts(name: str) -> tuple[PromptAct, ...]:
    """Return the verified acts on a prompt. They are only added, so their number tells whether there are new ones."""
    with pool.in_transaction() as connection:
        row = pool.row(connection, _COUNT, {"name": name})
    assert row is not None  # a SELECT of a count has one row
    known = _known.get(name, ())
    if len(known) == row[0]:
        return known
    found = acts.read(name).get(name, ())
    with _lock:
        _known[name] = found
    return found
