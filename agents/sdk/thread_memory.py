"""What the runs of an agent remember of earlier runs of their thread."""

from dataclasses import dataclass
from typing import Any

from runtime.core.values.limits import MAX_REMEMBERED


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


def last(texts: int) -> ThreadMemory:
    """Remember the last `texts` of the thread."""
    return ThreadMemory(last=texts)


def summary(max_tokens: int) -> ThreadMemory:
    """Remember a summary of the thread, in so many tokens at most. The model makes it when the run begins."""
    return ThreadMemory(last=MAX_REMEMBERED, summary=max_tokens)
