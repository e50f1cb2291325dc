"""The options of calls and frames, fixed at admission or when the frame opens.

Later code and settings do not change them.
"""

from dataclasses import dataclass
from typing import Literal

from runtime.core.values.enums import EffectClass, Risk

Waits = Literal["", "time", "event", "instance"]  # what the engine waits for in place of a call


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """The number of attempts, and the wait between two of them (seconds, before jitter).

    `on` lists the failure causes worth another attempt; None means all but `setup` and `request`.
    """

    attempts: int
    base: float
    ceiling: float
    on: tuple[str, ...] | None = None


TOOL_RETRIES = RetryPolicy(attempts=3, base=0.5, ceiling=10.0)
MODEL_RETRIES = RetryPolicy(attempts=6, base=1.0, ceiling=60.0)
MODEL_DEADLINE = 120.0
MAX_RETRY_AFTER = 3600.0  # the longest wait that a model's provider may ask for


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """The options of an agent's model, fixed when its frame opens. `deadline` is seconds for one attempt."""

    retry: RetryPolicy = MODEL_RETRIES
    deadline: float = MODEL_DEADLINE


MODEL_OPTIONS = ModelOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionOptions:
    """The size (in messages or bytes) from which a frame is compacted, and the author of the summary."""

    messages: int | None = None
    bytes: int | None = None
    by: Literal["model", "author"] = "model"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOptions:
    """The options of a call, fixed at admission; later code or policy does not change them.

    A delegated call opens a frame for the agent `delegate`. `deadline` is in seconds. With `waits` the call only
    waits, for a `time`, an `event`, or the `instance` that performs it. `risk` is that of a call judged by its
    arguments, None if all calls of its tool share one. With `plan` its result is the frame's plan, with `answers` the
    answer of the frame, with `tells` a message to the requester of the run.
    """

    effect: EffectClass
    digest: str
    deadline: float
    delegate: str | None = None
    retry: RetryPolicy = TOOL_RETRIES
    waits: Waits = ""
    risk: Risk | None = None
    plan: bool = False
    answers: bool = False
    tells: bool = False
