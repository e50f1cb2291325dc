"""Says which versions of prompts a run uses: those in production when it began, or when a release changed its agent."""

from datetime import datetime

from runtime.core.continuation import Continuation
from runtime.core.events import AgentChange, PinnedPrompt
from runtime.core.ids import ROOT

PART = "prompt"  # as in the definition of an agent


def prompts_at(now: Continuation, parent: str | None) -> datetime | None:
    """Return the time whose versions a frame below `parent` uses; None for the first frame, which uses today's."""
    while parent is not None:
        frame = now.frame(parent)
        if frame.pinned is not None:
            return frame.pinned.at
        parent = frame.parent
    return now.frames[ROOT].opened_at if ROOT in now.frames else None


def with_prompt(
    changes: tuple[AgentChange, ...], before: PinnedPrompt | None, after: PinnedPrompt | None
) -> tuple[AgentChange, ...]:
    """Add the change of the prompt's version. Like a reworded text, it needs no approval."""
    if _describe_version(before) == _describe_version(after):
        return changes
    prompt_change = AgentChange(
        part=PART, before=_describe_version(before), after=_describe_version(after), asks=False
    )
    return (*(change for change in changes if change.part != PART), prompt_change)


def _describe_version(pinned: PinnedPrompt | None) -> str | None:
    if pinned is None:
        return None
    version = f"version {pinned.number}" if pinned.number else "the text in the code"
    return f"{pinned.name}, {version}"
