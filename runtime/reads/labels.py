"""The texts of effect classes and messages on pages, and the titles of agents and tools."""

from typing import Literal

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

MADE_KEYS = ("aap:", "mcp:")  # what a business key begins with that no person made


def effect_texts(effect: str) -> tuple[str, str]:
    """Return the short name of an effect class and its consequence; the class itself if it is unknown."""
    if effect not in tuple(EffectClass):
        return effect, effect
    rule = EFFECT_CLASSES[EffectClass(effect)]
    return rule.label, rule.consequence


def readable_key(key: str | None) -> str:
    """Return a business key; empty for one that the Agent Approval Protocol or a gateway made."""
    return "" if key is None or key.startswith(MADE_KEYS) else key


def title_of(name: str) -> str:
    """Return the title of an agent. A tool, and an agent without a title, is named in words. Not yet escaped."""
    title = wiring.catalogue().titles().get(name)
    words = name.replace("_", " ")
    return words[:1].upper() + words[1:] if title is None else title
