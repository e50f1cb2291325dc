"""The texts of effect classes and messages on pages, and the titles of agents and tools."""

from typing import Any, Literal

from runtime.core.values.enums import EFFECT_CLASSES, EffectClass
from runtime.ports import wiring

MessageKind = Literal[
    "input",
    "text",
    "call",
    "decision",
    "result",
    "fault",
    "late",
    "retry",
    "release",
    "frame_gate",
    "summary",
    "instructions",
    "message",
    "review",
    "question",
    "answer",
]

MESSAGES: dict[MessageKind, str] = {
    "input": "given by",
    "text": "written by",
    "call": "requested by",
    "decision": "decided by",
    "result": "result of",
    "fault": "error of",
    "late": "late outcome of",
    "retry": "no result from",
    "summary": "earlier messages summarised by",
    "instructions": "instructions made from the input of",
    "release": "another version of",
    "frame_gate": "stopped:",
    "message": "message from",
    "review": "message from the reviewer",
    "question": "question of",
    "answer": "answer to a question by",
}

# What the business keys begin with that the Agent Approval Protocol and MCP gateways make, and no person.
AAP_KEY, GATEWAY_KEY = "aap:", "mcp:"


def describe_effect(effect: str) -> tuple[str, str]:
    """Return the short name of an effect class and its consequence; the class itself if it is unknown."""
    if effect not in tuple(EffectClass):
        return effect, effect
    rule = EFFECT_CLASSES[EffectClass(effect)]
    return rule.label, rule.consequence


def format_business_key(key: str | None) -> str:
    """Return a business key; empty for one that no person made."""
    return "" if key is None or key.startswith((AAP_KEY, GATEWAY_KEY)) else key


def readable_output(key: str | None, output: Any) -> Any:
    """Return an output for people: of a call through a gateway what its server answered, or why it failed."""
    is_gateway = key is not None and key.startswith(GATEWAY_KEY)
    if not is_gateway or not isinstance(output, dict) or not {"result", "error"} <= output.keys():
        return output
    return output["result"] if output["error"] is None else output["error"]


def format_agent_title(name: str) -> str:
    """Return the title of an agent. A tool, and an agent without a title, is named in words. Not yet escaped."""
    title = wiring.resolve_catalogue().read_titles().get(name)
    words = name.replace("_", " ")
    return words[:1].upper() + words[1:] if title is None else title
