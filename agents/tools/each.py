"""An agent that has another agent work on each item of a list, several at once.

It is an agent of code: the function here decides its next calls, also where the installation has models. Each item is
an ordinary call of a sub-agent, so gates, crashes, budgets and the run's page are as for any other one.
"""

import json
from dataclasses import replace
from typing import Annotated, Any

from pydantic import BaseModel, Field, create_model

from agents.sdk import agent as define
from agents.sdk import mistakes
from agents.sdk.scripts import Reply, Script, Turn, answer, call, script, together
from agents.sdk.spec import AgentSpec
from runtime.core.values.json_values import encode_canonical, measure_size
from runtime.core.values.limits import MAX_ITEMS
from runtime.core.values.texts import clean_text

MAX_AT_ONCE = 20
MAX_RESULTS = 256 * 1024  # bytes of all results, as JSON; each item has an equal share of them


class Outcome(BaseModel):
    """The outcome of the item at this place of the list, from 1. If `error` is there, it has no result.

    With `cut` the result is the beginning of its text.
    """

    item: int
    result: Any = None
    error: str | None = None
    cut: bool = False


class Outcomes(BaseModel):
    """The outcomes in the order of the items."""

    outcomes: list[Outcome]


@mistakes.record_mistakes
def for_each(
    agent: AgentSpec,
    *,
    name: str | None = None,
    description: str | None = None,
    max_items: Annotated[int, Field(ge=1, le=MAX_ITEMS)] = 100,
    at_once: Annotated[int, Field(ge=1, le=MAX_AT_ONCE)] = 5,
) -> AgentSpec:
    """Make an agent that has `agent` work on each item of a list. List it among the sub-agents of another one.

    Its input is `{"items": […]}`, at most `max_items` (up to 200) inputs of `agent`, and all of them together at most
    64 KB. `agent` works on `at_once` (up to 20) items at once, in their order: when one has its outcome, the next one
    starts. Equal items are worked on once. The result is `{"outcomes": […]}` in the order of the items, each with
    `item`, and `result` or `error`: an item that fails or is denied does not end the others. All results together have
    at most 256 KB, in equal shares; a longer one is `cut`. Raises DefinitionError if the definition is invalid.
    """
    if isinstance(agent, mistakes.Unusable):
        return agent
    items: Any = Annotated[list[agent.input], Field(min_length=1, max_length=max_items)]  # type: ignore[name-defined]
    spec = define(
        name=name or f"each_{agent.name}",
        description=description or f"Has {agent.name} work on each item of a list.",
        instructions=f"Hand each item to {agent.name}, and report every outcome in the order of the items.",
        input=create_model("Items", items=(items, ...)),
        output=Outcomes,
        model=_make_script(agent.name),
        subagents=[agent],
    )
    # The reply carries `at_once` into the journal, so the limit holds after a crash, a fork and a new release
    flags: dict[str, Any] = {"is_code": True, "items": True, "at_once": at_once}
    return replace(spec, **flags) if isinstance(spec, AgentSpec) else spec


def _make_script(agent: str) -> Script:
    """Call the agent for all items that have no result yet."""

    def work(turn: Turn) -> Reply:
        items: list[Any] = turn.input["items"]
        names = [encode_canonical(item) for item in items]  # Python takes true for 1
        distinct = [items[names.index(name)] for name in dict.fromkeys(names)]
        results = [result for result in turn.results if result.tool == agent]
        remaining = distinct[len(results) :]
        if remaining:
            return together(*(call(agent, **item) for item in remaining))
        by_name = dict(zip(dict.fromkeys(names), results, strict=True))
        share = MAX_RESULTS // len(names)
        outcomes = []
        for number, name in enumerate(names, start=1):
            result = by_name[name]
            content = result.content
            if not result.ok:
                outcome = Outcome(item=number, error=cut_text(clean_text(result.why), share))
            elif measure_size(content) <= share:
                outcome = Outcome(item=number, result=content)
            else:
                is_text = isinstance(content, str)
                text = content if is_text else json.dumps(content, ensure_ascii=False)
                outcome = Outcome(item=number, result=cut_text(text, share), cut=True)
            outcomes.append(outcome)
        return answer(Outcomes(outcomes=outcomes))

    work.__qualname__ = for_each.__name__
    return script(work)


def cut_text(text: str, share: int) -> str:
    """Return the beginning of a text that has at most `share` bytes as JSON."""
    while (size := measure_size(text)) > share:
        text = text[: len(text) * share // size]
    return text
