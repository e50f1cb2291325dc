"""Agents and tools as plain data: made by the definitions, read by all other modules of agents.

A `Prompt` names instructions that people may replace by a version in the installation; a `ThreadMemory` is what a run
remembers of its thread.
"""

import inspect
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from inspect import iscoroutinefunction
from typing import Annotated, Any, Literal, assert_never

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from agents.credentials import Credential
from agents.errors import DefinitionError
from agents.sdk import mistakes
from runtime.core.values import call_options, limits
from runtime.core.values.budgets import BudgetLimits
from runtime.core.values.enums import RISKS, EffectClass, Risk
from runtime.core.values.ids import is_prompt_name
from runtime.core.values.json_values import copy_value, hash_value
from runtime.core.values.texts import find_placeholders

DEFAULT_DEADLINE = 30.0
DEPENDS = "depends on its arguments"
PIN = "$comment"  # of a schema: the definition of another system that the author accepted
FINAL_ANSWER = "final_answer"  # the tool with which a model gives a typed result
EACH = "scripted:agents.tools.each.for_each"  # the model of an agent that `for_each` makes
GATEWAY = "scripted:agents.tools.mcp_gateway.mcp_gateway"  # that of one that `mcp_gateway` makes
APPROVAL_RESULT = "approval_result"  # the tool of every gateway that reads a result later


class ApprovalMode(StrEnum):
    """The calls of an agent that wait for a person. A Risk in its place means calls of that risk and higher ones."""

    BY_TOOL = "by_tool"  # those whose tool requires it
    EVERY_CALL = "every_call"  # all of them, also calls of sub-agents


Condition = Callable[..., Any]  # a function of the validated arguments of a call
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
SummaryTokens = Annotated[int, Field(ge=limits.MIN_SUMMARY_TOKENS, le=limits.MAX_SUMMARY_TOKENS)]

# The fields of settings are checked where a definition has them, so that the mistake names the tool or agent.
CHECKED = ConfigDict(revalidate_instances="always", strict=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holds:
    """The rules by which an agent stops before its next model call until a person continues it.

    `every` is a number of replies; `after` is in seconds since it began or was last continued. `when` is called each
    time with the messages, oldest first. It returns the reason to stop, or nothing.
    """

    __pydantic_config__ = CHECKED
    every: Annotated[int, Field(ge=1)] | None = None
    after: Seconds | None = None
    when: Callable[[tuple[dict[str, Any], ...]], str | None] | None = None

    def reason_to_stop(
        self, *, agent: str, turn: int, seconds: float, messages: tuple[Any, ...]
    ) -> str:
        """Return why to stop here, or an empty text. An agent never stops before its first reply."""
        if turn == 0:
            return ""
        if self.every is not None and turn % self.every == 0:
            return f"{agent} stops after every {self.every} replies, and this was number {turn}"
        if self.after is not None and seconds >= self.after:
            return f"{agent} stops after {self.after:g} seconds of work"
        if self.when is None:
            return ""
        return self.when(tuple(map(copy_value, messages))) or ""  # the run has the other ones


NEVER_HELD = Holds()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSettings:
    """The settings of a tool that one agent overrides; None means that the value of `@tool` applies."""

    deadline: float | None = None
    expires_in: float | None = None
    approval: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ToolSpec:
    """One tool: a function, and the data for the model, the reviewer and the engine.

    `schema` is the JSON Schema of the arguments and `arguments` checks them; `defaults` are the values of optional
    ones. `result` checks the returned value and makes JSON of it, None if it may be any JSON. `deadline` is in
    seconds. `approval` asks for a person each time; it and `risk` may be conditions, which judge each call.
    `wants_context` says that the function takes a ToolContext before its arguments. `expires_in` is how many seconds
    people have to decide. `secret_args` are the names of arguments that only the model and the function may see;
    `secret_result` says the same of the result. `waits` says that the engine waits in place of the function, for a
    `time`, an `event`, or the `instance` that performs the call. `isolate` says that it runs in a process of its
    own, which is killed at the deadline. `question` says that a person gives the result, and the function is never
    called. `plan` says that the result is the plan of the calling agent. `holds_text` says that it gives an agent's
    answer or another text for the requester: reviewers may read its secret arguments, the requester only its result.
    `settings` are those of the agent that lists it; `waived` is true if the tool requires approval and this agent
    does not. `preview` says what a call would change, and `preview_ignores` names the parts of it that do not matter;
    `precondition` says why it cannot be made. `is_async` says that the function is a coroutine function.
    `sentence_args` are the arguments that its sentence names. `deny_reasons` are suggested reasons for a denial, empty
    for those that all tools have. `credentials` are fetched when a call starts. `mcp_name` is the name that the
    tool has on its MCP server, empty for any other tool.
    """

    name: str
    description: str
    function: Callable[..., Any]
    arguments: TypeAdapter[dict[str, Any]]
    schema: dict[str, Any]
    result: TypeAdapter[Any] | None
    result_schema: dict[str, Any] | None
    defaults: dict[str, Any]
    effect: EffectClass
    risk: Risk | Condition
    approval: bool | Condition
    sentence: str
    deadline: float
    wants_context: bool
    retry: call_options.RetryPolicy
    expires_in: float | None
    secret_args: frozenset[str]
    secret_result: bool
    waits: call_options.Waits = ""
    question: bool = False
    plan: bool = False
    holds_text: bool = False
    isolate: bool = False
    preview: Condition | None = None
    preview_ignores: tuple[str, ...] = ()
    precondition: Condition | None = None
    settings: ToolSettings = ToolSettings()
    waived: bool = False
    deny_reasons: tuple[str, ...] = ()
    credentials: tuple[Credential, ...] = ()
    mcp_name: str = ""
    is_async: bool = field(init=False, repr=False)
    sentence_args: frozenset[str] = field(init=False, repr=False)
    _changeable: tuple[str, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # Every call of the tool reads these, so they are computed once.
        names = inspect.signature(self.function).parameters.keys() & self.defaults
        changeable = [name for name in names if isinstance(self.defaults[name], list | dict)]
        object.__setattr__(self, "_changeable", tuple(changeable))
        object.__setattr__(self, "is_async", iscoroutinefunction(self.function))
        object.__setattr__(self, "sentence_args", frozenset(find_placeholders(self.sentence)))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function as its author wrote it."""
        return self.function(*args, **kwargs)

    def copy_defaults(self) -> dict[str, Any]:
        """Return copies of the lists and objects among the function's own defaults.

        A function that changes its default would otherwise change it for later calls, which a person approved without.
        """
        if not self._changeable:
            return {}
        return {name: deepcopy(self.defaults[name]) for name in self._changeable}

    @mistakes.record_mistakes
    def with_settings(
        self,
        *,
        deadline: Seconds | None = None,
        expires_in: Seconds | None = None,
        approval: bool | None = None,
    ) -> "ToolSpec":
        """Return the tool with another deadline, time to decide (both in seconds) or approval for one agent.

        None leaves a setting as it is. If `approval=False` overrides a tool that requires approval, `make agents` and
        the agent's page say so. Raise DefinitionError for a time that is not more than 0.
        """
        stated = {"deadline": deadline, "expires_in": expires_in, "approval": approval}
        overrides: dict[str, Any] = {k: value for k, value in stated.items() if value is not None}
        if self.question and approval is False:
            raise DefinitionError(f"tool {self.name}: a question always waits for a person")
        asks = bool(self.approval) or self.waived
        settings = replace(self.settings, **overrides)
        return replace(
            self, **overrides, settings=settings, waived=asks and settings.approval is False
        )

    @property
    def is_judged(self) -> bool:
        """Whether a condition judges each call."""
        return callable(self.risk) or callable(self.approval)

    @property
    def schema_digest(self) -> str:
        """The digest of the schema of the arguments."""
        return _compute_schema_digest(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """The number of messages, or of bytes, above which a summary replaces a frame's earlier messages.

    `summarise` gets the messages as the engine stores them (ports.effects.ModelRequest) and must return the text
    quickly; without it the agent's model writes the summary.
    """

    __pydantic_config__ = CHECKED
    messages: Annotated[int, Field(ge=4)] | None = None
    bytes: Annotated[int, Field(ge=1_000)] | None = None
    summarise: Callable[[tuple[dict[str, Any], ...]], str] | None = None

    @property
    def terms(self) -> call_options.CompactionOptions:
        """Return the options that the engine stores with a frame."""
        by: Literal["model", "author"] = "model" if self.summarise is None else "author"
        return call_options.CompactionOptions(messages=self.messages, bytes=self.bytes, by=by)


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt: its name, and the text in the code, which is used until people put a version in production."""

    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadMemory:
    """The number of texts that a run remembers: what people asked earlier runs of its thread, and their answers.

    With `summary`, the most tokens that it takes, the model sums them up at the beginning of the run.
    """

    __pydantic_config__ = CHECKED
    last: Annotated[int, Field(ge=1, le=limits.MAX_REMEMBERED)]
    summary: Literal[0] | SummaryTokens = 0

    @property
    def definition(self) -> dict[str, Any]:
        """Return the memory as JSON, for the agent's definition and its published row."""
        return {"last": self.last, **({"summary": self.summary} if self.summary else {})}


def prompt(name: str, text: str) -> Prompt:
    """Name the instructions of an agent, so that people can change them without a release.

    `text` is used until a version is in production. `{field}` in it is replaced by a field of the agent's input, and
    later versions must name the same fields; write a brace as two. Raise DefinitionError for an invalid name or an
    empty text.
    """
    if not is_prompt_name(name):
        raise DefinitionError(
            f"prompt {name!r}: a name has letters, digits, - and _, in one or two parts with a / between"
        )
    if not isinstance(text, str) or not 0 < len(text.strip()) <= limits.MAX_INSTRUCTIONS:
        raise DefinitionError(
            f"prompt {name}: its text must have 1 to {limits.MAX_INSTRUCTIONS} characters"
        )
    return Prompt(name, inspect.cleandoc(text))


def last(texts: int) -> ThreadMemory:
    """Remember the last `texts` of the thread."""
    return ThreadMemory(last=texts)


def summary(max_tokens: int) -> ThreadMemory:
    """Remember a summary of the thread, in so many tokens at most. The model makes it when the run begins."""
    return ThreadMemory(last=limits.MAX_REMEMBERED, summary=max_tokens)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AgentSpec:
    """One agent. `instructions` are a text, or the source of `instruct`, the function that makes the text of the input.

    `input` is the Pydantic model of its input, `input_schema` its JSON Schema. `output` and `output_schema` are those
    of its result, None for an agent that answers with text. `model` is the script that replaces the model: a function
    of the messages. Without one, providers' models always answer. `steps` are the short phrases of the agent's plan,
    None if it declares none. `approvals` can only be stricter than its tools. `models` are its own instead of the
    installation's, in the order in which they are called. `retry` and `deadline` (seconds) are for each attempt at
    each of them. `temperature` and `max_tokens` (of one reply) go with each request, unless they are None. `holds`
    says when it stops for a review, `thread_memory` what its runs remember of earlier runs of their thread. `budget` is
    what one activation may use with all below it, None for no limit. `answer` is the call by which its answer is given,
    if it can be held, None if it never is. `prompt_name` names the prompt whose version in production replaces the
    instructions, which are then its text in the code; empty without one.
    `title` is for people, in place of the name. With `is_code` its script answers,
    also where the installation has models. With `items` each call of a sub-agent is about one item of a list.
    At most `at_once` calls of one reply of its script are open together, all of them if it is 0.
    `keeps_secrets` says whether one of its tools has secrets, `seals_texts` whether one holds a text until its release:
    then other texts of its model are sealed. `model_name` is the name of the script.
    """

    name: str
    description: str
    instructions: str
    model: Callable[..., Any] | None
    input: type[BaseModel]
    input_schema: dict[str, Any]
    tools: tuple[ToolSpec, ...]
    subagents: tuple["AgentSpec", ...]
    steps: tuple[str, ...] | None
    approvals: ApprovalMode | Risk = ApprovalMode.BY_TOOL
    models: tuple[str, ...] = ()
    retry: call_options.RetryPolicy = call_options.MODEL_RETRIES
    deadline: float = call_options.MODEL_DEADLINE
    holds: Holds = NEVER_HELD
    compaction: Compaction | None = None
    budget: BudgetLimits | None = None
    instruct: Callable[[Any], str] | None = None
    output: type[BaseModel] | None = None
    output_schema: dict[str, Any] | None = None
    answer: ToolSpec | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    thread_memory: ThreadMemory | None = None
    prompt_name: str = ""
    title: str = ""
    is_code: bool = False
    items: bool = False
    at_once: int = 0
    keeps_secrets: bool = field(init=False, repr=False)
    seals_texts: bool = field(init=False, repr=False)
    model_name: str = field(init=False, repr=False)
    _tools: dict[str, ToolSpec] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # Every call of the agent reads these, so they are computed once.
        secret = any(tool.secret_args or tool.secret_result for tool in self.all_tools)
        object.__setattr__(self, "keeps_secrets", secret)
        object.__setattr__(self, "seals_texts", any(tool.holds_text for tool in self.all_tools))
        model_name = ""
        if self.model is not None:
            name = getattr(self.model, "__qualname__", type(self.model).__qualname__)
            model_name = f"scripted:{self.model.__module__}.{name}"
        object.__setattr__(self, "model_name", model_name)
        object.__setattr__(self, "_tools", {tool.name: tool for tool in reversed(self.all_tools)})

    @property
    def all_tools(self) -> tuple[ToolSpec, ...]:
        """The tools that its model may call, and the one by which its answer is given."""
        return self.tools if self.answer is None else (*self.tools, self.answer)

    def requires_approval(self, risk: Risk, *, by_tool: bool) -> bool:
        """Say whether a call of this risk waits for a person. `by_tool` is the tool's own setting."""
        match self.approvals:
            case ApprovalMode.BY_TOOL:
                return by_tool
            case ApprovalMode.EVERY_CALL:
                return True
            case Risk() as least:
                return by_tool or RISKS.index(risk) >= RISKS.index(least)
            case _ as never:
                assert_never(never)

    def approval_of(self, tool: ToolSpec) -> bool | str:
        """Say whether calls of this tool wait for a person, or that it depends on their arguments.

        Those that change the agent's own plan never do.
        """
        if tool.plan:
            return False
        may = RISKS if callable(tool.risk) else (tool.risk,)
        asks = (False, True) if callable(tool.approval) else (tool.approval,)
        results = {self.requires_approval(risk, by_tool=asked) for risk in may for asked in asks}
        return results.pop() if len(results) == 1 else DEPENDS

    def tool(self, name: str) -> ToolSpec | None:
        """Return the tool with this name, None if the agent has none."""
        return self._tools.get(name)

    def subagent(self, name: str) -> "AgentSpec | None":
        """Return the sub-agent with this name, None if the agent has none."""
        return next((agent for agent in self.subagents if agent.name == name), None)

    @property
    def prompt(self) -> str:
        """Return the digest of the instructions."""
        return hash_value(self.instructions)

    @property
    def definition(self) -> dict[str, Any]:
        """Return the data that determines the agent's behaviour, as JSON."""
        # The installation's models are not part of an agent's version.
        script = [] if self.model is None else [self.model_name]
        sampling = {"temperature": self.temperature, "max_tokens": self.max_tokens}
        definition: dict[str, Any] = {
            "name": self.name,
            "instructions": self.instructions,
            "model": [*script, *self.models] if self.models else "".join(script) or "default",
            "approvals": self.approvals,
            "tools": [_describe_tool(self, tool) for tool in self.all_tools],
            "subagents": [
                {
                    "name": agent.name,
                    "description": agent.description,
                    "schema": agent.input_schema,
                    "approval": self.requires_approval(Risk.LOW, by_tool=False),
                }
                for agent in self.subagents
            ],
            **{name: value for name, value in sampling.items() if value is not None},
        }
        if self.prompt_name:
            definition["prompt"] = self.prompt_name
        if self.thread_memory is not None:
            definition["thread_memory"] = self.thread_memory.definition
        return (
            definition
            if self.output_schema is None
            else {**definition, "output": self.output_schema}
        )

    @property
    def fingerprint(self) -> str:
        """Return the digest of the definition."""
        return hash_value(self.definition)


def _describe_tool(agent: AgentSpec, tool: ToolSpec) -> dict[str, Any]:
    """Describe a tool of an agent. `approval` is the agent's setting, which may differ from the tool's."""
    definition: dict[str, Any] = {
        "name": tool.name,
        "description": tool.description,
        "schema": tool.schema,
        "effect": tool.effect,
        "risk": DEPENDS if callable(tool.risk) else tool.risk,
        "approval": agent.approval_of(tool),
        "secret": [*sorted(tool.secret_args), *(["its result"] if tool.secret_result else [])],
    }
    if tool.waits:
        definition["waits"] = tool.waits
    if tool.question:
        definition["answer"] = tool.result_schema
    if tool.plan:
        definition["plan"] = True
    definition |= {name: True for name in ("preview", "precondition") if getattr(tool, name)}
    if tool.credentials:
        definition["credentials"] = [credential.name for credential in tool.credentials]
    times = {"deadline": tool.settings.deadline, "expires_in": tool.settings.expires_in}
    return definition | {name: seconds for name, seconds in times.items() if seconds is not None}


@lru_cache(1024)
def _compute_schema_digest(tool: ToolSpec) -> str:
    return hash_value(tool.schema)
