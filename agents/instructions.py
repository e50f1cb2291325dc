"""Makes the instructions of an agent from a version of its prompt."""

import inspect
from datetime import datetime
from typing import Any

from agents.sdk.spec import AgentSpec
from runtime.core.run.events import PinnedPrompt
from runtime.core.values.json_values import sha256_of
from runtime.core.values.limits import MAX_INSTRUCTIONS
from runtime.core.values.texts import fill_placeholders, find_placeholders
from runtime.errors import InvalidInput
from runtime.ports.prompts import Instructions, Prompts


def fill_version(
    agent: AgentSpec,
    input: Any,
    prompts: Prompts | None,
    at: datetime,
    version: int | None = None,
) -> Instructions:
    """Fill in the version that was in production `at`, or the text in the code if none was. `version` names another.

    A text in the code without variables needs no copy in each run, as other instructions. Raise InvalidInput.
    """
    name = agent.prompt_name
    if prompts is None or version == 0:
        stored_version = None
    elif version is None:
        stored_version = prompts.in_production(name, at)
    else:
        stored_version = prompts.version(name, version)
    number, text = (
        (0, agent.instructions)
        if stored_version is None
        else (stored_version.number, stored_version.text)
    )
    pinned = PinnedPrompt(name=name, number=number, digest=sha256_of(text), at=at)
    if number == 0 and not find_placeholders(text):
        return Instructions(pinned=pinned)
    return Instructions(text=fill(name, text, input), pinned=pinned)


def fill(name: str, text: str, input: Any) -> str:
    """Fill in the fields of an input. Raise InvalidInput for a variable that it lacks, or a text that is too long."""
    try:
        instructions = fill_placeholders(text, input if isinstance(input, dict) else {})
    except KeyError as exc:
        raise InvalidInput(
            "instructions", f"the prompt {name} names {{{exc.args[0]}}}, which the input lacks"
        ) from exc
    if len(instructions) > MAX_INSTRUCTIONS:
        raise InvalidInput(
            "instructions", f"of the prompt {name} have more than {MAX_INSTRUCTIONS} characters"
        )
    return inspect.cleandoc(instructions)
