"""What was agreed when a call was judged or a frame opened: it stays, whatever code or settings say later."""

from dataclasses import dataclass
from typing import Literal

from runtime.core.enums import EffectClass


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often something is attempted, and how long to wait in between (seconds, before jitter).

    `on` says which causes of a failure are worth another attempt, None for all but `setup` and `request`.
    """

    attempts: int
    base: float
    ceiling: float
    on: tuple[str, ...] | None = None


TOOL_RETRIES = RetryPolicy(attempts=3, base=0.5, ceiling=10.0)
MODEL_RETRIES = RetryPolicy(attempts=6, base=1.0, ceiling=60.0)
MODEL_DEADLINE = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """What was true of an agent's model when its frame opened. `deadline` is seconds for one attempt."""

    retry: RetryPolicy = MODEL_RETRIES
    deadline: float = MODEL_DEADLINE


MODEL_OPTIONS = ModelOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionOptions:
    """From how many messages, or bytes of them, a frame is compacted, and who writes the summary."""

    messages: int | None = None
    bytes: int | None = None
    by: Literal["model", "author"] = "model"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOptions:
    """What was true of a call when it was judged; later code or policy does not change it.

    `delegate` names the agent that a delegated call opens a frame for. `deadline` is in seconds. `waits` says
    that the call is nothing but a wait, for a `time` or an `event`.
    """

    effect: EffectClass
    digest: str
    deadline: float
    delegate: str | None = None
    retry: RetryPolicy = TOOL_RETRIES
    waits: Literal["", "time", "event"] = ""
