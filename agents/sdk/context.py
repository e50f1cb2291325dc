"""The facts about a call that a tool may ask for, and the tool `plan`, which `agent(plan=True)` adds."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field

from agents.errors import ToolError
from runtime.core.run import frames
from runtime.core.run.continuation import PlanItem
from runtime.core.values.limits import MAX_PLAN_ITEM, MAX_PLAN_ITEMS

_Item = Annotated[str, Field(min_length=1, max_length=MAX_PLAN_ITEM)]
_Number = Annotated[int, Field(ge=1, le=MAX_PLAN_ITEMS)]
Items = Annotated[list[_Item], Field(max_length=MAX_PLAN_ITEMS)]
Numbers = Annotated[list[_Number], Field(max_length=MAX_PLAN_ITEMS)]


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


def plan(
    context: ToolContext,
    write: Items | None = None,
    add: Items | None = None,
    done: Numbers | None = None,
    doing: _Number | None = None,
) -> dict[str, Any]:
    """Keep the plan of your work, which people see too: one short line for each item.

    `write` replaces the whole plan, `add` appends items, `done` ticks items by their numbers from 1, and `doing` names
    the item that you work on now. Write the plan before you begin, and tick an item as soon as it is done. Returns the
    plan.
    """
    try:
        changed = frames.change_plan(
            context.todo, write=write, add=add or (), done=done or (), doing=doing
        )
    except ValueError as exc:
        raise ToolError(f"the plan was not changed: {exc}") from exc
    return frames.plan_result(changed)
