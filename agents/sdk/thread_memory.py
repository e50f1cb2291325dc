"""What the runs of an agent remember of earlier runs of their thread."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadMemory:
    """The number of texts that a run remembers: what people asked earlier runs of its thread, and their answers."""

    last: int

    @property
    def definition(self) -> dict[str, Any]:
        """Return the memory as JSON, for the agent's definition and its published row."""
        return {"last": self.last}


def last(texts: int) -> ThreadMemory:
    """Remember the last `texts` of the thread."""
    return ThreadMemory(last=texts)
