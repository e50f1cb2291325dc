"""Defines tools and agents: `@tool` on a typed function, `agent(…)` around instructions, model and tools.

A tool may ask for the facts about its call, a `ToolContext`. `agent(plan=True)` adds the tool `plan`. An agent whose
answer may wait for a reviewer gives it by a call of its own.
"""

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, field, replace
from decimal import Decimal
from functools import cache
from typing import Annotated, Any
from uuid import UUID

from pydantic import BaseModel, Field

from agents.credentials import Credential
from agents.errors import CredentialRefused, DefinitionError, NotDone, ToolError
from agents.sdk import fields, mistakes
from agents.sdk.previews import Preview, PreviewChange
from agents.sdk.signature import ToolSignature, read_signature
from agents.sdk.spec import (
    CHECKED,
    DEFAULT_DEADLINE,
    FINAL_ANSWER,
    NEVER_HELD,
    AgentSpec,
    ApprovalMode,
    Compaction,
    Condition,
    Holds,
    Prompt,
    Seconds,
    ThreadMemory,
    ToolSpec,
    last,
    prompt,
    summary,
)
from runtime.core.run import frames
from runtime.core.run.continuation import PlanItem
from runtime.core.values import budgets
from runtime.core.values.call_options import (
    MODEL_DEADLINE,
    MODEL_RETRIES,
    TOOL_RETRIES,
    RetryPolicy,
)
from runtime.core.values.enums import EffectClass, FailureCause, Risk
from runtime.core.values.json_values import file_value
from runtime.core.values.limits import MAX_PLAN_ITEM, MAX_PLAN_ITEMS

__all__ = [
    "Answer",
    "Budget",
    "Compaction",
    "CredentialRefused",
    "FailureCause",
    "Holds",
    "NotDone",
    "Preview",
    "PreviewChange",
    "RetryPolicy",
    "ToolContext",
    "ToolError",
    "agent",
    "file_value",
    "last",
    "prompt",
    "summary",
    "tool",
]

ANSWER_ARGUMENT = "answer"
ANSWERED_TOGETHER = (
    "together"  # the name of the arguments of an answer that is not alone in its reply
)
MAX_TOKENS = 1_000_000  # of one reply
ANSWER_SENTENCE = "Give the answer to the requester"

_Tool = Callable[..., Callable[[Callable[..., Any]], Any]]

_Item = Annotated[str, Field(min_length=1, max_length=MAX_PLAN_ITEM)]
_Number = Annotated[int, Field(ge=1, le=MAX_PLAN_ITEMS)]
Items = Annotated[list[_Item], Field(max_length=MAX_PLAN_ITEMS)]
Numbers = Annotated[list[_Number], Field(max_length=MAX_PLAN_ITEMS)]


# The only result that a person may report for a call whose result is secret: that it happened.
_NOTHING = {"type": "null"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The rules by which an agent's answer waits for a reviewer: as for a call of a tool.

    `approval` and `risk` may be functions of `answer`, a text or the agent's `output`. `expires_in` is the time in
    seconds that reviewers have, `deny_reasons` are the reasons that they are offered.
    """

    __pydantic_config__ = CHECKED
    approval: bool | Condition = True
    risk: Risk | str | Condition = Risk.LOW
    expires_in: Seconds | None = None
    deny_reasons: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The limits of one activation of an agent, with everything below it; None means no limit.

    `turns` counts replies of models, `calls` starts of tools, `tokens` those of requests and replies. `usd` is money
    in US dollars to six decimals, `seconds` active time without waiting for people, `depth` the levels of agents,
    this one included.
    """

    __pydantic_config__ = CHECKED
    turns: int | None = None
    calls: int | None = None
    tokens: int | None = None
    usd: Decimal | str | float | None = None
    seconds: float | None = None
    depth: int | None = None

    def read(self, label: str) -> budgets.BudgetLimits | None:
        """Return the budget as the engine stores it. Raise DefinitionError."""
        try:
            return budgets.read_budget(asdict(self))
        except budgets.InvalidBudget as exc:
            raise DefinitionError(f"{label}: its budget: {exc}") from exc


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


def tool(
    *functions: Callable[..., Any],
    effect: EffectClass | str = EffectClass.WRITE,
    approval: bool | Callable[..., bool] = False,
    risk: Risk | str | Callable[..., Risk | str] = Risk.LOW,
    sentence: str | None = None,
    deadline: Seconds = DEFAULT_DEADLINE,
    retry: RetryPolicy = TOOL_RETRIES,
    expires_in: Seconds | None = None,
    secret_args: Sequence[str] | AbstractSet[str] = (),
    secret_result: bool = False,
    isolate: bool = False,
    deny_reasons: Sequence[str] = (),
    preview: Callable[..., Preview] | None = None,
    preview_ignores: Sequence[str] = (),
    precondition: Callable[..., str | None] | None = None,
    credentials: Sequence[Credential] = (),
    foreign_signature: ToolSignature | None = None,
) -> Callable[[Callable[..., Any]], ToolSpec]:
    """Make a tool of a typed function. The model receives its name, docstring and types.

    `effect` says how a lost call is treated, `approval` that a person must approve each call. `approval` and `risk`
    may each be a function that judges a call by those of its arguments that it names. It must be quick and change
    nothing; if it fails, a person is asked, and the risk is high. `sentence` describes a call, with arguments in
    braces. `retry` applies to calls that certainly did nothing or may be repeated. `expires_in` is the time in
    seconds that people have to decide. The arguments in `secret_args`, and with `secret_result` the result, are
    stored encrypted; only the model and the function see them. A transactional tool writes through Django; it must
    not commit. `isolate` runs the function in a process of its own, which is killed at the deadline. `preview` returns
    what a gated call would do, for its reviewer; it is called again just before the effect, and a different one is
    asked again, except for the parts in `preview_ignores`. `precondition` returns why a call cannot be made, or None.
    Both take arguments by name, also `context`, and only read. `deny_reasons` are texts that reviewers are offered
    when they deny a call; the model receives the one they choose. `credentials` are fetched when a call starts, into
    `context.credentials`. `foreign_signature` describes the arguments in place of the function's types, for
    a tool of another system. Raises DefinitionError if the definition is invalid.
    """
    settings = {name: value for name, value in locals().items() if name != "functions"}

    def define(function: Callable[..., Any]) -> ToolSpec:
        label = f"tool {function.__name__}"
        if functions:
            raise DefinitionError(f"{label}: write @tool() above it, with the parentheses")
        mistakes.check_settings(tool, settings, label)
        effect_class = fields.check_effect(effect, function, label)
        signature = foreign_signature or read_signature(function, label, context=ToolContext)
        return ToolSpec(
            name=fields.check_name(function.__name__, label),
            description=fields.check_description(inspect.getdoc(function), label),
            function=function,
            arguments=signature.arguments,
            schema=fields.build_arguments_schema(signature, secret_args),
            result=signature.result,
            result_schema=_NOTHING if secret_result else signature.result_schema,
            defaults=signature.defaults,
            effect=effect_class,
            risk=fields.check_risk(risk, signature, label),
            approval=fields.check_approval(approval, signature, label),
            sentence=fields.check_sentence(sentence, function.__name__, signature, label),
            deadline=deadline,
            wants_context=signature.wants_context,
            retry=fields.check_retry(retry, label),
            expires_in=expires_in,
            secret_args=fields.check_secret_args(secret_args, signature, label),
            secret_result=secret_result,
            isolate=fields.check_isolate(function, effect_class, label) if isolate else False,
            deny_reasons=fields.check_deny_reasons(deny_reasons, label),
            preview=fields.check_function(preview, "preview", signature, label),
            preview_ignores=fields.check_preview_ignores(preview_ignores, preview, label),
            precondition=fields.check_function(precondition, "precondition", signature, label),
            credentials=fields.check_credentials(credentials, signature, label),
        )

    definition: Any = mistakes.record_mistakes(define)
    return definition(*functions) if functions else definition  # type: ignore[no-any-return]


@mistakes.record_mistakes
def agent(
    *,
    name: str,
    description: str,
    instructions: str | Prompt | Callable[[Any], str],
    input: type[BaseModel],
    model: Callable[..., Any] | str | None = None,
    tools: Sequence[ToolSpec] = (),
    subagents: Sequence[AgentSpec] = (),
    steps: Sequence[str] | None = None,
    approvals: ApprovalMode | Risk | str = ApprovalMode.BY_TOOL,
    models: Sequence[str] | str = (),
    retry: RetryPolicy = MODEL_RETRIES,
    deadline: Seconds = MODEL_DEADLINE,
    holds: Holds | None = None,
    compaction: Compaction | None = None,
    budget: Budget | None = None,
    output: type[BaseModel] | None = None,
    answer: Answer | bool | Callable[..., bool] = False,
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None,
    max_tokens: Annotated[int, Field(ge=1, le=MAX_TOKENS)] | None = None,
    plan: bool = False,
    thread_memory: ThreadMemory | None = None,
    title: str = "",
) -> AgentSpec:
    """Define an agent. Assign it to a name of the module, or the registry does not find it.

    `input` is a Pydantic model. The web process checks an input against its JSON Schema. The first worker reads it
    with the model and passes the result to the agent. `instructions` are a text, or a function of the input that
    returns one; it is called once, when the agent begins. `prompt(…)` gives a text that people may replace by a later
    version, without a release. For a model a sub-agent is one more tool, named like the
    agent, whose arguments are the agent's input. `steps` is the plan that reviewers see.

    `approvals` selects the calls that wait for a person: `by_tool`, `every_call`, or a risk for all calls from that
    risk up. A tool that requires approval always gets it.

    `model` is a script, or the name of a provider's model such as `openai:…`; without either the installation's
    models answer. `models` replace those, unless a script answers; each is called after the attempts at the previous
    one are used up. `retry` is the policy for each of them, `deadline` the seconds of one attempt. `temperature` (0
    to 2) and `max_tokens` (of one reply) are sent with each request.

    `holds` says when the agent stops before its next model call until a person continues it, `compaction` when a
    summary replaces earlier messages. `budget` limits each activation of the agent with everything below it: if it is
    exhausted, people are asked. `output` is the Pydantic model of its result, which is checked before the agent ends;
    without it the agent answers with text. `answer` holds that answer until a reviewer approves it: True, a function of
    `answer`, or an `Answer` with more rules. With `plan` the agent has one more tool, `plan`, with which its model
    keeps a list of items; the open ones are in each request to it. `thread_memory` is `last(20)` for an agent whose
    runs remember that many texts of earlier runs of their thread. `title` is what people read in place of the name; it
    is no part of the agent's version. Raises DefinitionError if the definition is invalid.
    """
    label = f"agent {name}"
    tools = fields.select_usable(ToolSpec, tools)
    tools = (*tools, _plan_tool()) if plan else tools
    subagents = fields.select_usable(AgentSpec, subagents)
    names = [*(tool.name for tool in tools), *(subagent.name for subagent in subagents)]
    fields.refuse_duplicates(names, label)
    schema = fields.build_input_schema(input, label)
    return AgentSpec(
        name=fields.check_name(name, label),
        title=fields.check_title(title, label),
        description=fields.check_description(description, label),
        instructions=fields.check_instructions(instructions, label),
        instruct=None if isinstance(instructions, str | Prompt) else instructions,
        prompt_name=fields.check_prompt_name(instructions, schema, label),
        model=None if isinstance(model, str) else model,
        temperature=temperature,
        max_tokens=max_tokens,
        thread_memory=thread_memory,
        input=input,
        input_schema={**schema, "additionalProperties": False},
        tools=tools,
        subagents=subagents,
        steps=None if steps is None else tuple(steps),
        approvals=fields.check_approvals(approvals, label),
        models=fields.check_models(model, models, label),
        retry=fields.check_retry(retry, label),
        deadline=deadline,
        holds=holds or NEVER_HELD,
        compaction=fields.check_compaction(compaction, label),
        budget=None if budget is None else budget.read(label),
        output=output,
        output_schema=None if output is None else fields.build_output_schema(output, names, label),
        answer=answer_tool(tool, answer, output, names, label),
    )


@cache
def _plan_tool() -> ToolSpec:
    """Return the tool with which an agent keeps its plan."""
    spec = tool(effect=EffectClass.READ, sentence="Change the plan")(plan)
    return replace(spec, plan=True)


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
    return frames.make_plan_result(changed)


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
    give.__annotations__ = {ANSWER_ARGUMENT: output or str, "return": output or str}
    spec = tool(
        effect="read",
        approval=rules.approval,
        risk=rules.risk,
        sentence=ANSWER_SENTENCE,
        expires_in=rules.expires_in,
        deny_reasons=rules.deny_reasons,
    )(give)
    if not isinstance(spec, ToolSpec):  # a mistake in the rules, which is already noted
        return None
    return replace(spec, holds_text=True, secret_args=frozenset({ANSWER_ARGUMENT}))
