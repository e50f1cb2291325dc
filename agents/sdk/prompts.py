"""Names instructions that people may replace by a version in the installation, and what runs remember of a thread."""

import inspect
from dataclasses import dataclass
from typing import Any

from agents.errors import DefinitionError
from runtime.core.values.ids import is_prompt_name
from runtime.core.values.limits import MAX_INSTRUCTIONS, MAX_REMEMBERED


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt: its name, and the text in the code, which is used until people put a version in production."""

    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadMemory:
    """The number of texts that a run remembers: what people asked earlier runs of its thread, and their answers.

    With `summary`, the most tokens that it takes, the model sums them up at the beginning of the run.
    """

    last: int
    summary: int = 0

    @property
    def definition(self) -> dict[str, Any]:
        """Return the memory as JSON, for the agent's definition and its published row."""
        return {"last": self.last, **({"summary": self.summary} if self.summary else {})}


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


def last(texts: int) -> ThreadMemory:
    """Remember the last `texts` of the thread."""
    return ThreadMemory(last=texts)


def summary(max_tokens: int) -> ThreadMemory:
    """Remember a summary of the thread, in so many tokens at most. The model makes it when the run begins."""
    return ThreadMemory(last=MAX_REMEMBERED, summary=max_tokens)
