"""Prompts that people change in the installation; implemented by approvals, read by the worker's agents."""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from runtime.core.run.events import PinnedPrompt


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptVersion:
    """One version of a prompt, with the digest of its text. A number is never used for another text."""

    name: str
    number: int
    text: str
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Instructions:
    """The instructions of a frame: a text that a function or a prompt made of the input, empty if it is the agent's.

    `pinned` is the version of the prompt, None for an agent without one.
    """

    text: str = ""
    pinned: PinnedPrompt | None = None


class Prompts(Protocol):
    """Finds versions of prompts."""

    def in_production(self, name: str, at: datetime) -> PromptVersion | None:
        """Return the version that was in production at this time, None if the text in the code was.

        Raises an error if the stored rows are not the signed ones: then no run starts with another text.
        """

    def version(self, name: str, number: int) -> PromptVersion | None:
        """Return a version by its number, None for the text in the code. Raises an error if there is none."""
