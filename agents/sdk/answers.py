"""Answers that are held: an agent gives its answer by a call of its own, which may wait for a reviewer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel

from agents.errors import DefinitionError
from agents.sdk.spec import FINAL_ANSWER, Condition, ToolSpec
from runtime.core.values.enums import Risk

ARGUMENT = "answer"
TOGETHER = "together"  # the name of the arguments of an answer that is not alone in its reply
SENTENCE = "Give the answer to the requester"

_Tool = Callable[..., Callable[[Callable[..., Any]], Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The rules by which an agent's answer waits for a reviewer: as for a call of a tool.

    `approval` and `risk` may be functions of `answer`, a text or the agent's `output`. `expires_in` is the time in
    seconds that reviewers have, `deny_reasons` are the reasons that they are offered.
    """

    approval: bool | Condition = True
    risk: Risk | str | Condition = Risk.LOW
    expires_in: float | None = None
    deny_reasons: Sequence[str] = ()


def answer_tool(
    tool: _Tool, setting: Any, output: type[BaseModel] | None, names: Sequence[str], label: str
) -> ToolSpec | None:
    """Make the tool with which the agent gives its answer, or None if its answers are never held.

    `setting` is an Answer, or its `approval` alone. `names` are those of the agent's tools. Raise DefinitionError.
    """
    if setting is None or setting is False:
        return None
    rules = setting if isinstance(setting, Answer) else Answer(approval=setting)
    if FINAL_ANSWER in names:
        raise DefinitionError(
            f"{label}: its answer is held as a call of {FINAL_ANSWER}: give your tool another name"
        )

    def give(answer: Any) -> Any:
        return answer

    give.__name__, give.__doc__ = FINAL_ANSWER, "Give the answer of the agent, which ends its work."
    give.__annotations__ = {ARGUMENT: output or str, "return": output or str}
    spec = tool(
        effect="read",
        approval=rules.approval,
        risk=rules.risk,
        sentence=SENTENCE,
        expires_in=rules.expires_in,
        deny_reasons=rules.deny_reasons,
    )(give)
    if not isinstance(spec, ToolSpec):  # a mistake in the rules, which is already noted
        return None
    return replace(spec, holds_text=True, secret_args=frozenset({ARGUMENT}))
