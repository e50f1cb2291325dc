"""Finds the version of a prompt that was in production at a time; workers ask when an agent begins."""

from datetime import datetime

from approvals import clock
from approvals.errors import PromptBroken, UnknownPrompt
from approvals.governance import prompts
from approvals.governance.prompts import LOG, PromptHistory
from approvals.models import PromptAct
from runtime.ports.prompts import PromptVersion


class StoredPrompts:
    """Implements the port Prompts with the signed acts."""

    def in_production(self, name: str, at: datetime) -> PromptVersion | None:
        """Return the version that was in production at this time, None for the text in the code. Raise PromptBroken."""
        LOG.wait_for_appends()  # an act has its time before other connections see it
        found = prompts.history(_recent(name), name, at)
        return _version(found, found.in_production)

    def version(self, name: str, number: int) -> PromptVersion | None:
        """Return a version by its number, None for the text in the code. Raise PromptBroken or UnknownPrompt."""
        return _version(prompts.history(_recent(name), name, clock.now()), number)


def problem_of(name: str, number: int, digest: str) -> str | None:
    """Say why a version is not the signed text with this digest; None if it is. The text in the code is not stored."""
    if number == prompts.CODE:
        return None
    try:
        found = prompts.history(LOG.rows(name=name), name, clock.now())
    except PromptBroken as exc:
        return str(exc)
    if number not in found.versions:
        return "there is no such version"
    return None if found.versions[number].digest == digest else "it has another text"


def _version(found: PromptHistory, number: int) -> PromptVersion | None:
    if number == prompts.CODE:
        return None
    if number not in found.versions:
        raise UnknownPrompt
    one = found.versions[number]
    return PromptVersion(name=found.name, number=number, text=one.text, digest=one.digest)


def _recent(name: str) -> tuple[PromptAct, ...]:
    return LOG.recent_rows(name=name)[0]
