"""The agents as the engine and the web know them; implemented by agents."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from runtime.core.budgets import Budget, Rates
from runtime.core.call_options import (
    MODEL_OPTIONS,
    TOOL_RETRIES,
    CompactionOptions,
    ModelOptions,
    RetryPolicy,
)
from runtime.core.enums import EffectClass, Risk
from runtime.core.events import Change
from runtime.ports.access import Expression


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentInfo:
    """What the engine freezes of an agent when a frame opens. Digests are `sha256:<hex>`.

    `budget` is what one activation may use with all below it; `rates` are what its model charges, None if
    nobody knows.
    """

    name: str
    fingerprint: str
    prompt: str
    plan: tuple[str, ...] | None
    model: ModelOptions = MODEL_OPTIONS
    compaction: CompactionOptions | None = None
    budget: Budget | None = None
    rates: Rates | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallInfo:
    """What the code says of one proposed call: how risky it is and how to put it in a sentence.

    `schema` is the JSON Schema of the arguments, `schema_digest` its digest; `deadline` is in seconds;
    `delegate` names the sub-agent when the call is a delegation; `gated` asks for a person whatever policy says.
    `result_schema` is the JSON Schema of what the tool returns, None if it does not say. `expires_in` is how
    many seconds people have to decide, None for the installation's default. `waits` says that the call is a
    wait of the engine's: for the `moment` in its arguments, or for an `event` that contains `match`, up to `until`.
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
    retry: RetryPolicy = TOOL_RETRIES
    expires_in: float | None = None
    waits: Literal["", "time", "event"] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionChange:
    """How this process's agent differs from the version that a frame was opened for.

    `older` says that the frame's version came after this process's. `writes` are tools that have become writes.
    """

    agent: AgentInfo
    changes: tuple[Change, ...]
    older: bool = False
    writes: tuple[str, ...] = ()

    @property
    def asks(self) -> bool:
        """Whether a person must agree before the frame goes on under this version."""
        return any(change.asks for change in self.changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnBoundary:
    """Where a frame stands before a model call: `turn` replies behind it, `seconds` since it began or last
    went on from a hold; `messages` as a ModelRequest has them."""

    agent: str
    turn: int
    seconds: float
    messages: tuple[dict[str, Any], ...]


class CallRejected(Exception):
    """A proposed call cannot be made: unknown tool or arguments that break its schema; the model is told."""


class AgentCatalogue(Protocol):
    """The published agents, as the web knows them without importing author code; implemented by agents."""

    def check_input(self, agent: str, value: Any) -> None:
        """Raise UnknownAgent or InvalidInput unless `value` may start `agent`."""

    def schema(self, agent: str) -> Expression:
        """Return the expression of the schema of an agent's input, for `check_read`."""

    def check_read(self, agent: str, schema: Any, value: Any) -> None:
        """Raise as `check_input` does, by the value that `schema` had."""

    def is_newer(self, agent: str, fingerprint: str, *, than: Collection[str]) -> bool:
        """Whether this version of an agent was published after all of those."""

    def knows(self, agent: str) -> bool:
        """Whether an agent of that name was ever published."""

    def names(self) -> list[str]:
        """Of every agent that was ever published, in order."""
