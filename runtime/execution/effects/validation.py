"""Validates outcomes of models and tools: refuses values over a limit, and cleans error texts."""

from dataclasses import replace
from typing import assert_never

from runtime.core.digest import require_json
from runtime.core.errors import NotJson
from runtime.core.limits import (
    MAX_CALLS,
    MAX_ITEMS,
    MAX_REPLY,
    MAX_RESULT,
    MAX_TOOL,
    plain,
    size_of,
)
from runtime.ports.effects import (
    ModelAnswer,
    ModelFailure,
    Outcome,
    RateLimited,
    ToolFailure,
    ToolResult,
    Unknown,
)


def validate_outcome(outcome: Outcome) -> Outcome:
    """Return the outcome as it is journaled. Raises NotJson with the field and the limit."""
    match outcome:
        case ModelAnswer():
            _check_answer(outcome)
            return outcome
        case ToolResult():
            _require(outcome.value, "result", MAX_RESULT)
            return outcome
        case ModelFailure():
            return replace(
                outcome,
                error=plain(outcome.error),
                partial=plain(outcome.partial),
                said=plain(outcome.said),
            )
        case ToolFailure() | Unknown():
            return replace(outcome, error=plain(outcome.error))
        case RateLimited():
            return outcome
        case _ as never:
            assert_never(never)


def _check_answer(answer: ModelAnswer) -> None:
    """Check the other fields of a reply: a provider's client may have added to them."""
    limit = MAX_ITEMS if answer.at_once else MAX_CALLS
    if len(answer.calls) > limit:
        raise NotJson("calls", f"{len(answer.calls)} in one reply, at most {limit} are taken")
    if not _is_within_limits(answer):
        _find_problem(answer)


def _is_within_limits(answer: ModelAnswer) -> bool:
    """Return whether all parts together are within the limits of one part: then each of them is."""
    calls = [[proposal.tool, proposal.args] for proposal in answer.calls]
    parts = [answer.reply, answer.text, answer.usage, answer.output, calls]
    try:
        require_json(parts)
    except NotJson:
        return False
    return size_of(parts) <= MAX_REPLY and all(len(tool) <= MAX_TOOL for tool, _ in calls)


def _find_problem(answer: ModelAnswer) -> None:
    """Raise NotJson with the part of an answer that exceeds a limit; return if none does."""
    for index, proposal in enumerate(answer.calls):
        require_json(proposal.tool, f"calls[{index}].tool")
        if len(proposal.tool) > MAX_TOOL:
            raise NotJson(f"calls[{index}].tool", f"at most {MAX_TOOL} characters are taken")
        require_json(proposal.args, f"calls[{index}].args")
    facts = {
        "reply": answer.reply,
        "text": answer.text,
        "usage": answer.usage,
        "output": answer.output,
    }
    for name, fact in facts.items():
        if fact is not None:
            _require(fact, name, MAX_REPLY)
    if sum(size_of(proposal.args) for proposal in answer.calls) > MAX_REPLY:
        raise NotJson("args", f"more than {MAX_REPLY} bytes of JSON in one reply")


def _require(value: object, field: str, limit: int) -> None:
    require_json(value, field)
    size = size_of(value)
    if size > limit:
        raise NotJson(field, f"is {size} bytes of JSON, at most {limit} are taken")
