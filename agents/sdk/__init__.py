"""The public names for authors: `tool`, `agent` and their types."""

import logging
from typing import TYPE_CHECKING, Any

from agents.sdk.definitions import (
    Answer,
    Budget,
    Compaction,
    CredentialRefused,
    FailureCause,
    Holds,
    NotDone,
    Preview,
    PreviewChange,
    RetryPolicy,
    ToolContext,
    ToolError,
    agent,
    last,
    prompt,
    summary,
    tool,
)

__all__ = [
    "Answer",
    "Budget",
    "Compaction",
    "CredentialRefused",
    "FailureCause",
    "Holds",
    "NotDone",
    "Preview",
    "PreviewChange",
    "RetryPolicy",
    "ToolContext",
    "ToolError",
    "agent",
    "last",
    "prompt",
    "summary",
    "tool",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Return an old name for one release, with a warning."""
        if name != "Blame":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        logging.getLogger(__name__).warning(
            "agents.sdk.Blame is now agents.sdk.FailureCause; the old name goes with the next release"
        )
        return FailureCause
