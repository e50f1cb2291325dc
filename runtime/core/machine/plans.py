"""The plan of a frame: items that its model writes, ticks and adds with the tool `plan`.

The result of each such call is the whole plan, so the last result is the plan. The calls of one turn are made one
after the other, in the model's order. A compaction leaves the plan as it is.
"""

import json
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from runtime.core.call_states import SETTLED
from runtime.core.continuation import Call, Frame, PlanItem
from runtime.core.fast_replace import replace
from runtime.core.limits import KEPT_INLINE, MAX_PLAN_ITEM, MAX_PLAN_ITEMS

Plan = tuple[PlanItem, ...]

_PLAN: TypeAdapter[Plan] = TypeAdapter(Plan)
_RESULT = "plan"


def changed(
    plan: Plan,
    *,
    write: Sequence[str] | None = None,
    add: Sequence[str] = (),
    done: Sequence[int] = (),
    doing: int | None = None,
) -> Plan:
    """Return the plan with these changes, made in this order. Raises ValueError with a text for the model."""
    if write is None and not add and not done and doing is None:
        raise ValueError("give at least one of write, add, done and doing")
    items = [*(plan if write is None else map(_item, write)), *map(_item, add)]
    if len(items) > MAX_PLAN_ITEMS:
        raise ValueError(f"a plan has at most {MAX_PLAN_ITEMS} items, and this has {len(items)}")
    for number in done:
        _require(number, items, "done")
        items[number - 1] = _now(items[number - 1], "done")
    if doing is not None:
        _require(doing, items, "doing")
        items = [_now(one, "open") if one.state == "doing" else one for one in items]
        items[doing - 1] = _now(items[doing - 1], "doing")
    made = tuple(items)
    if len(json.dumps(result_of(made), separators=(",", ":"))) > KEPT_INLINE:
        # The entry of the call must have all of it.
        raise ValueError("its items are too long together: write them shorter")
    return made


def result_of(plan: Plan) -> dict[str, Any]:
    """Return the result of a call of the tool."""
    return {_RESULT: _PLAN.dump_python(plan, mode="json")}


def read(result: Any) -> Plan | None:
    """Return the plan in a result, None if it has none."""
    try:
        return _PLAN.validate_python(result[_RESULT])
    except (ValidationError, LookupError, TypeError):
        return None


def keep(frame: Frame, call: Call) -> Frame:
    """Return the frame with the plan that a returned call has for its result."""
    if call.terms is None or not call.terms.plan:
        return frame
    plan = read(call.result)
    return frame if plan is None else replace(frame, todo=plan)


def may_change(call: Call) -> bool:
    """Tell whether an admitted call may still change the plan: later calls of its turn wait for it."""
    return call.terms is not None and call.terms.plan and call.state not in SETTLED


def current(plan: Plan) -> int | None:
    """Return the number of the item at work: the one that the model named, or the first that is not done."""
    for state in ("doing", "open"):
        for number, item in enumerate(plan, 1):
            if item.state == state:
                return number
    return None


def place_of(plan: Plan) -> dict[str, Any] | None:
    """Return the item at work as JSON, with its number and the size of the plan. None if no item is left."""
    number = current(plan)
    if number is None:
        return None
    return {"item": plan[number - 1].text, "number": number, "of": len(plan)}


def _item(text: str) -> PlanItem:
    line = " ".join(text.split())
    if not 0 < len(line) <= MAX_PLAN_ITEM:
        raise ValueError(
            f"an item has 1 to {MAX_PLAN_ITEM} characters, and this has {len(line)}: {line[:40]}"
        )
    return PlanItem(text=line)


def _now(item: PlanItem, state: Literal["open", "doing", "done"]) -> PlanItem:
    return PlanItem(text=item.text, state=state)


def _require(number: int, items: Sequence[PlanItem], where: str) -> None:
    if not 1 <= number <= len(items):
        raise ValueError(f"{where}: there is no item {number}; the plan has {len(items)}")
