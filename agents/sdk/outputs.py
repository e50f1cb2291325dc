"""Typed results: gives the model a tool for its result, and checks the result with the agent's Pydantic model."""

import json
from collections.abc import Sequence
from typing import Any

from agents.sdk import inputs
from agents.sdk.spec import FINAL_ANSWER, AgentSpec
from runtime.core.run.events import Proposal
from runtime.errors import InvalidInput

DESCRIPTION = (
    "Give the final answer, once everything else is done. Call it alone: it ends the work."
)
NO_JSON = f"give the final answer by calling {FINAL_ANSWER} with arguments of its schema"
NOT_ALONE = f"{FINAL_ANSWER} is called once and alone, when every other call has its result"


def read(
    agent: AgentSpec, calls: Sequence[Proposal], text: str
) -> tuple[dict[str, Any] | None, tuple[Proposal, ...]]:
    """Return the typed result of a reply as JSON, or None and the calls to make.

    A result that does not fit stays among the calls, where the engine refuses it and tells the model why. The
    model tries again.
    """
    if agent.output is None:
        return None, tuple(calls)
    calls = calls or (Proposal(tool=FINAL_ANSWER, args=_json(text)),)
    if len(calls) == 1 and calls[0].tool == FINAL_ANSWER:
        try:
            result: dict[str, Any] = inputs.read(agent.output, calls[0].args, root=FINAL_ANSWER)
        except InvalidInput:
            return None, tuple(calls)
        return result, ()
    return None, tuple(calls)


def problem(agent: AgentSpec, args: Any) -> str:
    """Say why these arguments are not accepted as the result, with all errors."""
    assert agent.output is not None  # only such agents have the tool
    if isinstance(args, str):
        return inputs.json_problem(args, root=FINAL_ANSWER) or NO_JSON
    try:
        inputs.read(agent.output, args, root=FINAL_ANSWER)
    except InvalidInput as exc:
        return exc.all_of_it
    return NOT_ALONE


def _json(text: str) -> Any:
    """Parse the text that a model wrote instead of calling the tool; return the text if it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
