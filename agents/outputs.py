"""Typed results: the tool by which a model gives one, and what the agent's model of it says of what was given."""

import json
from collections.abc import Sequence
from typing import Any

from agents import inputs
from agents.spec import FINAL_ANSWER, AgentSpec
from runtime.core.events import Proposal
from runtime.ports import InvalidInput

DESCRIPTION = (
    "Give the final answer, once everything else is done. Call it alone: it ends the work."
)
NO_JSON = f"give the final answer by calling {FINAL_ANSWER} with arguments of its schema"
NOT_ALONE = f"{FINAL_ANSWER} is called once and alone, when every other call has its result"


def read(
    agent: AgentSpec, calls: Sequence[Proposal], text: str
) -> tuple[dict[str, Any] | None, tuple[Proposal, ...]]:
    """The result that a reply gives, as JSON by its schema, or None with the calls that are still to be made.

    An answer that does not fit is among the calls, to be refused: so the model is told why, and tries again.
    """
    if agent.output is None:
        return None, tuple(calls)
    calls = calls or (Proposal(tool=FINAL_ANSWER, args=_json(text)),)
    if len(calls) == 1 and calls[0].tool == FINAL_ANSWER:
        try:
            found: dict[str, Any] = inputs.read(agent.output, calls[0].args, where=FINAL_ANSWER)
        except InvalidInput:
            return None, tuple(calls)
        return found, ()
    return None, tuple(calls)


def problem(agent: AgentSpec, args: Any) -> str:
    """Why these arguments of the tool are no result: everything that is wrong at once."""
    assert agent.output is not None  # only such agents have the tool
    if isinstance(args, str):
        return NO_JSON
    try:
        inputs.read(agent.output, args, where=FINAL_ANSWER)
    except InvalidInput as exc:
        return exc.all_of_it
    return NOT_ALONE


def _json(text: str) -> Any:
    """What a model wrote instead of calling the tool; the text itself if it is no JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
