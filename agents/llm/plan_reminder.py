"""Puts the open items of an agent's plan at the end of each request to its model, where no compaction removes them.

The message is made anew for each request and not stored, so it never breaks the cached beginning of a conversation.
"""

from pydantic_ai.messages import ModelMessage, ModelRequest, UserPromptPart

from agents.sdk.scripts.conversation_texts import PLAN
from agents.sdk.spec import AgentSpec
from runtime.core.continuation import PlanItem


def reminder(
    agent: AgentSpec, todo: tuple[PlanItem, ...], instructions: str = ""
) -> list[ModelMessage]:
    """Return the message with the open items, none if the plan has no such item."""
    items = list(enumerate(todo, 1))
    left = [f"{number}. {one.text}" for number, one in items if one.state != "done"]
    if not left:
        return []
    doing = [f", and item {number} is at work" for number, one in items if one.state == "doing"]
    counts = f"{len(todo) - len(left)} of {len(todo)} items are done{''.join(doing)}."
    text = "\n".join([f"{PLAN}{counts} Open:", *left])
    part = UserPromptPart(content=text)
    return [ModelRequest(parts=[part], instructions=instructions or agent.instructions)]
