"""Reads the tools that a published MCP gateway offers."""

from dataclasses import dataclass
from typing import Any

from agents.catalogue.published import versions
from agents.models import PublishedAgent
from agents.sdk.spec import GATEWAY, PIN
from runtime.core.values.enums import EffectClass
from runtime.core.values.json_values import is_text


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedTool:
    """A tool with the name, the description and the schema that were accepted, and its declared effect."""

    name: str
    description: str
    schema: dict[str, Any]
    effect: EffectClass


def offered_tools(name: str) -> tuple[OfferedTool, ...] | None:
    """Return the tools of the gateway of this name, None if there is none."""
    agent = PublishedAgent.objects.filter(name=name).first() if is_text(name) else None
    if agent is None:
        return None
    version = versions([agent.fingerprint]).get(agent.fingerprint)
    if version is None or version.definition["model"] != GATEWAY:
        return None
    names = agent.input_schema["properties"]["tool"]["enum"]  # in the order of the tools
    return tuple(
        OfferedTool(
            name=of_server,
            description=tool["description"],
            schema={key: rule for key, rule in tool["schema"].items() if key != PIN},
            effect=EffectClass(tool["effect"]),
        )
        for of_server, tool in zip(names, agent.tools, strict=True)
    )
