"""The tool `plan`, with which an agent keeps its plan. `agent(plan=True)` adds it."""

from typing import Annotated, Any

from pydantic import Field

from agents.errors import ToolError
from agents.sdk.context import ToolContext
from runtime.core.run import frames
from runtime.core.values.limits import MAX_PLAN_ITEM, MAX_PLAN_ITEMS

_Item = Annotated[str, Field(min_length=1, max_length=MAX_PLAN_ITEM)]
_Number = Annotated[int, Field(ge=1, le=MAX_PLAN_ITEMS)]
Items = Annotated[list[_Item], Field(max_length=MAX_PLAN_ITEMS)]
Numbers = Annotated[list[_Number], Field(max_length=MAX_PLAN_ITEMS)]


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
