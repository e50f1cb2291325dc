"""Rows of the catalogue of agents, as a worker publishes them."""

from typing import Any

from agents.models import PublishedAgent

TOOL: dict[str, Any] = {
    "name": "set_privileges",
    "description": "Set what an account may do.",
    "schema": {
        "type": "object",
        "properties": {"level": {"type": "integer", "minimum": 1}, "key": {"type": "string"}},
        "required": ["level"],
    },
    "effect": "write",
    "risk": "high",
    "approval": True,
    "sentence": "Set the level to {level}",
    "deadline": 30.0,
    "secret_args": ["key"],
    "secret_result": True,
}


def published(name: str = "hr_onboarding", **given: Any) -> PublishedAgent:
    facts: dict[str, Any] = {
        "description": "Brings people in.",
        "fingerprint": "sha256:abc",
        "tools": [TOOL],
        "subagents": ["account_agent"],
        "steps": ["Ask", "Do"],
    }
    return PublishedAgent.objects.create(name=name, **{**facts, **given})


def object_of(**properties: Any) -> dict[str, Any]:
    """The schema of an object that must have all these properties."""
    return {"type": "object", "properties": properties, "required": list(properties)}
