"""Scripts in place of a model, and the texts in a conversation that they and models are given."""

from agents.sdk.scripts.turns import (
    Reply,
    Result,
    Script,
    Turn,
    answer,
    call,
    own_answer,
    say,
    script,
    together,
)

__all__ = [
    "Reply",
    "Result",
    "Script",
    "Turn",
    "answer",
    "call",
    "own_answer",
    "say",
    "script",
    "together",
]
