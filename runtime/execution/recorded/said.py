"""Says what a model replied, then or today, so that people can compare both."""

from dataclasses import dataclass
from typing import Any

from runtime.core.run.events import ModelReplied
from runtime.ports.effects import ModelAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """The reply of a model: a text, calls, or a typed result."""

    text: str
    calls: tuple[dict[str, Any], ...]
    output: Any
    cost: int | None


def extract_reply(reply: ModelReplied | ModelAnswer) -> Said:
    """Return what a reply says, with its secrets sealed."""
    calls = tuple({"tool": call.tool, "args": call.args} for call in reply.calls)
    return Said(text=reply.text, calls=calls, output=reply.output, cost=reply.cost)
