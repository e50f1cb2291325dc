"""The facts about a call that a tool may ask for."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from runtime.core.run.continuation import PlanItem


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """The facts about a call, for a tool whose first parameter is `context: ToolContext`.

    `key` is the idempotency key: the same for every attempt at this call, and for no other call. Pass it to the
    system you write to. `deadline` is in seconds from the start of this attempt. `requester` is the name of the
    person who started the run. `approvers` are those who approved this call, empty if it needed no approval, and
    `comment` their comment, None without one. `business_key` is the run's business key if it has one. `input` is the
    calling agent's input, as JSON. `todo` is its plan, for the call that changes it.
    `credentials` are those of the tool by name, for this attempt alone.
    """

    run: UUID
    frame: str
    call: str
    attempt: int
    key: str
    deadline: float
    requester: str = ""
    approvers: tuple[str, ...] = ()
    comment: str | None = None
    business_key: str | None = None
    input: Any = None
    todo: tuple[PlanItem, ...] = ()
    credentials: Mapping[str, str] = field(default_factory=dict, repr=False)
    began: float = field(default_factory=time.monotonic)

    def remaining(self) -> float:
        """Return the seconds left, at least 0.1: most clients treat a timeout of zero as none."""
        return max(0.1, self.began + self.deadline - time.monotonic())
