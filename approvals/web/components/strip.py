"""Where a request is in its run: a strip of steps, done, this one and later, from the agent's plan or the calls."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Final, Literal

from runtime.core.values.enums import CallState
from runtime.reads.trace.calls import CallRecord
from runtime.reads.transcript import CallContext

State = Literal["done", "failed", "now", "later"]

MAX_BEFORE: Final = 5  # steps that are shown on either side of this one
MAX_AFTER: Final = 4
_OF_PLAN: Final[dict[str, State]] = {"done": "done", "doing": "now"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StripStep:
    """One step. `text` is the item of the plan, or the tool with the number of its calls in a row."""

    state: State
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """The steps beside this one. `earlier` and `later` count those that are left out."""

    steps: tuple[StripStep, ...]
    earlier: int
    later: int


def strip(around: CallContext, call: CallRecord | None, agent: str) -> Strip:
    """Return the steps of the innermost plan that an agent keeps; those of the calls if none keeps one.

    Without a call the agent itself is this step.
    """
    plan = next((other.frame.todo for other in reversed(around.plans) if other.frame.todo), ())
    if plan:
        steps = [
            StripStep(state=_OF_PLAN.get(item.state, "later"), text=item.text) for item in plan
        ]
    else:
        settled = (step.call for step in around.settled if not step.call.keeps_plan)
        steps = list(_in_rows((_state(other), other.tool) for other in settled))
        steps.append(StripStep(state="now", text=call.tool if call else agent))
        steps += _in_rows(("later", step.call.tool) for step in around.open)
    return _around_this(steps)


def _in_rows(steps: Iterable[tuple[State, str]]) -> Iterable[StripStep]:
    """Make one step of alike ones in a row."""
    for (state, tool), row in groupby(steps):
        number = len(list(row))
        yield StripStep(state=state, text=tool if number == 1 else f"{tool} ×{number}")


def _state(call: CallRecord) -> State:
    return "done" if call.state is CallState.RETURNED else "failed"


def _around_this(steps: list[StripStep]) -> Strip:
    before = [step.state in ("done", "failed") for step in steps]
    now = before.index(False) if False in before else len(steps)
    first, end = max(0, now - MAX_BEFORE), now + 1 + MAX_AFTER
    return Strip(steps=tuple(steps[first:end]), earlier=first, later=len(steps[end:]))
