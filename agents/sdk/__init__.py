"""What authors import: `tool`, `agent` and the types that go with them."""

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
