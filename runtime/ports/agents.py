"""Agents as the engine and the web process know them; implemented by agents.

Prompts that people change in the installation; implemented by approvals, read by the worker's agents.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

from runtime.core.run.events import AgentChange, PinnedPrompt
from runtime.core.values import call_options
from runtime.core.values.budgets import BudgetLimits, Rates
from runtime.core.values.enums import EffectClass, Risk
from runtime.ports.access import Expression


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentInfo:
    """The facts of an agent that the engine fixes when a frame opens. Digests are `sha256:<hex>`.

    `budget` limits one activation with everything below it. `rates` are the prices of its model, None if unknown.
    With `items` each call of a sub-agent is about one item of a list.
    """

    name: str
    fingerprint: str
    prompt: str
    plan: tuple[str, ...] | None
    model: call_options.ModelOptions = call_options.MODEL_OPTIONS
    compaction: call_options.CompactionOptions | None = None
    budget: BudgetLimits | None = None
    rates: Rates | None = None
    items: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CallInfo:
    """A proposed call as the code describes it: its risk, its sentence, its schema and its options.

    `schema` is the JSON Schema of the arguments, `schema_digest` its digest; `deadline` is in seconds. `delegate`
    names the sub-agent of a delegation. `gated` requires a person even if policy does not. `result_schema` is the
    JSON Schema of the result, None if the tool declares none. `expires_in` is the time to decide in seconds, None for
    the installation's default. `waits` says that the engine performs the call as a wait, for the `moment` in its
    arguments or for an `event` that contains `match`, up to `until`. `question` says that a person gives the result,
    and the call is never made. `answers` says that its result is the answer of its agent, `plan` that it is its plan,
    `tells` that it is a message to the requester of the run.
    `previews` says that its tool has a preview or a precondition. `judged` says that conditions of the tool set `risk`
    and `gated` for these arguments; `problem` is the failure of one, then both are the strictest.
    """

    tool: str
    effect: EffectClass
    risk: Risk
    gated: bool
    sentence: str
    schema: dict[str, Any]
    schema_digest: str
    deadline: float
    delegate: str | None = None
    result_schema: dict[str, Any] | None = None
    retry: call_options.RetryPolicy = call_options.TOOL_RETRIES
    expires_in: float | None = None
    waits: call_options.Waits = ""
    question: bool = False
    answers: bool = False
    tells: bool = False
    previews: bool = False
    judged: bool = False
    problem: str = ""
    plan: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionChange:
    """The differences between this process's agent and the version for which a frame was opened.

    `older` says that the frame's version is newer than this process's. `writes` are tools that have become writes.
    """

    agent: AgentInfo
    changes: tuple[AgentChange, ...]
    older: bool = False
    writes: tuple[str, ...] = ()

    @property
    def asks(self) -> bool:
        """Whether a person must agree before the frame continues with this version."""
        return any(change.asks for change in self.changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedChange:
    """The changes from version `before` of an agent to version `after`, by what workers published.

    `after` was published at `published_at`.
    """

    agent: str
    before: str
    after: str
    published_at: datetime
    changes: tuple[AgentChange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnBoundary:
    """The position of a frame before a model call.

    `turn` counts its replies. `seconds` is the time since it began, or since a person last released it from a hold.
    `messages` are as in ModelRequest.
    """

    agent: str
    turn: int
    seconds: float
    messages: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSchemas:
    """The JSON Schemas of a tool's arguments and of its result, which is None if the tool declares none."""

    arguments: dict[str, Any]
    result: dict[str, Any] | None
    effect: EffectClass


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedTool:
    """A tool of a published agent. `gated` requires a person even if policy does not, `question` one who answers.

    `depends` names those of `risk` and `approval` that the arguments of a call decide.
    """

    agent: str
    name: str
    risk: Risk
    gated: bool
    question: bool
    depends: frozenset[str]


class Asking(StrEnum):
    """When a person is asked before a call."""

    NEVER = "never"
    DEPENDS = "depends"  # the arguments decide
    ALWAYS = "always"
    ANSWERS = "answers"  # a person gives the result


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentParts:
    """The tools and the sub-agents of an agent, each by name with when a person is asked."""

    tools: dict[str, Asking]
    agents: dict[str, Asking]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptUser:
    """An agent that uses a prompt: its text in the code, and the fields of its input."""

    agent: str
    text: str
    fields: frozenset[str]


class CallRejected(Exception):
    """A proposed call cannot be made: unknown tool or arguments that break its schema; the model sees the error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembers:
    """The number of texts of earlier runs that a run remembers, and the tokens of their summary, 0 for the texts."""

    texts: int = 0
    summary: int = 0


class AgentCatalogue(Protocol):
    """The published agents, read without importing author code; implemented by agents."""

    def check_input(self, agent: str, value: Any) -> None:
        """Raise UnknownAgent or InvalidInput unless people may start `agent` with `value`."""

    def build_schema_expression(self, agent: str) -> Expression:
        """Return the expression of the schema of an agent's input, for `check_read`."""

    def check_read(self, agent: str, schema: Any, value: Any) -> None:
        """Raise as `check_input` does, from the value that `schema` had."""

    def remembers(self, agent: str) -> Remembers:
        """Return what a run of this agent remembers of earlier runs of its thread."""

    def is_newer(self, agent: str, fingerprint: str, *, than: Collection[str]) -> bool:
        """Say whether this version of an agent was published after all of those."""

    def list_updates(self, used: Mapping[str, str]) -> tuple[PublishedChange, ...]:
        """Return how the newest version of each agent differs from the used one, for those that have a newer one.

        `used` are fingerprints by name.
        """

    def list_changes(self, agent: str, before: str, after: str) -> tuple[AgentChange, ...] | None:
        """Return the changes between two published versions of an agent; None if one of them is none."""

    def is_published(self, agent: str) -> bool:
        """Say whether an agent of that name was ever published."""

    def list_names(self) -> list[str]:
        """List the names of all agents that were ever published, in order."""

    def list_called(self) -> list[str]:
        """List the names of the published agents that other agents call, sorted."""

    def read_titles(self) -> Mapping[str, str]:
        """Return the titles of the agents that have one, by name. They may be half a minute old."""

    def read_family(self, agent: str) -> Mapping[str, AgentParts]:
        """Return the parts of an agent and of the published agents below it, by name."""

    def deny_reasons(self, agent: str, tool: str) -> tuple[str, ...]:
        """Return the reasons for a denial that the tool's author suggests, empty without any."""

    def prompts(self) -> Mapping[str, tuple[PromptUser, ...]]:
        """Return the published agents that use each prompt, by its name."""

    def tools(self) -> frozenset[str]:
        """Return the names of all tools of published agents, and of those that agents call as tools."""

    def find_tool_schemas(self, agent: str, tool: str) -> "ToolSchemas | None":
        """Return the schemas of a tool of an agent as it was last published, None if it has no such tool."""

    def call_schema(self, agent: str, tool: str) -> Mapping[str, Any] | None:
        """Return the schema of the arguments of an agent's tool or sub-agent as last published, or None."""

    def answer_schema(self, agent: str) -> Mapping[str, Any] | None:
        """Return the schema of the typed answer of an agent as it was last published, None if it has none."""

    def is_working_on_items(self, agent: str) -> bool:
        """Say whether code of this agent, as last published, calls a sub-agent for each item of a list."""

    def list_published_tools(self) -> tuple[PublishedTool, ...]:
        """Return the tools of every published agent, by agent."""

    def list_argument_schemas(self, tools: Collection[str]) -> tuple[Mapping[str, Any], ...]:
        """Return the schema of the arguments of each published tool and sub-agent of these names."""

    def list_result_schemas(self, tool: str) -> tuple[Any, ...]:
        """Return the schema of the result of each published tool of this name that declares one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptVersion:
    """One version of a prompt, with the digest of its text. A number is never used for another text."""

    name: str
    number: int
    text: str
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Instructions:
    """The instructions of a frame: a text that a function or a prompt made of the input, empty if it is the agent's.

    `pinned` is the version of the prompt, None for an agent without one.
    """

    text: str = ""
    pinned: PinnedPrompt | None = None


class Prompts(Protocol):
    """Finds versions of prompts."""

    def find_in_production(self, name: str, at: datetime) -> PromptVersion | None:
        """Return the version that was in production at this time, None if the text in the code was.

        Raises an error if the stored rows are not the signed ones: then no run starts with another text.
        """

    def version(self, name: str, number: int) -> PromptVersion | None:
        """Return a version by its number, None for the text in the code. Raises an error if there is none."""
