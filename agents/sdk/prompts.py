"""Names a text of instructions that people may replace by a version in the installation."""

import inspect
from dataclasses import dataclass

from agents.errors import DefinitionError
from runtime.core.values.ids import is_prompt_name
from runtime.core.values.limits import MAX_INSTRUCTIONS


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt: its name, and the text in the code, which is used until people put a version in production."""

    name: str
    text: str


def prompt(name: str, text: str) -> Prompt:
    """Name the instructions of an agent, so that people can change them without a release.

    `text` is used until a version is in production. `{field}` in it is replaced by a field of the agent's input, and
    later versions must name the same fields; write a brace as two. Raise DefinitionError for an invalid name or an
    empty text.
    """
    if not is_prompt_name(name):
        raise DefinitionError(
            f"prompt {name!r}: a name has letters, digits, - and _, in one or two parts with a / between"
        )
    if not isinstance(text, str) or not 0 < len(text.strip()) <= MAX_INSTRUCTIONS:
        raise DefinitionError(
            f"prompt {name}: its text must have 1 to {MAX_INSTRUCTIONS} characters"
        )
    return Prompt(name, inspect.cleandoc(text))
