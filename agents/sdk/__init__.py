"""The public names for authors: `tool`, `agent` and their types."""

from agents.sdk.definitions import (
    Blame,
    Budget,
    Compaction,
    Holds,
    NotDone,
    RetryPolicy,
    ToolContext,
    ToolError,
    agent,
    tool,
)

__all__ = [
    "Blame",
    "Budget",
    "Compaction",
    "Holds",
    "NotDone",
    "RetryPolicy",
    "ToolContext",
    "ToolError",
    "agent",
    "tool",
]
