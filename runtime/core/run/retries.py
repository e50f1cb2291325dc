"""Decides what follows an attempt without a result: a retry and its time, or a failure.

Chance and time are arguments. The wait before a retry is drawn evenly from zero to a bound that doubles ("full
jitter"), unless the other side asked for a wait. No wait before another attempt exceeds the policy's ceiling. A policy
says which causes of a failure are worth a retry.

A failing provider does not fail a model call. Once the attempts at each of the agent's models are used up, the worker
calls all of them in rounds. The pauses grow until one replies or people are asked. A provider that asks for a wait
over the ceiling gets no request before its end, or for MAX_RETRY_AFTER.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from runtime.core.run.continuation import Call, Continuation, Frame, FrameState, Phase
from runtime.core.run.events import ModelFailed, OutcomeUnknown, RetryScheduled, ToolFailed
from runtime.core.values.call_options import MAX_RETRY_AFTER, CallOptions, RetryPolicy
from runtime.core.values.enums import EFFECT_CLASSES, CallState, FailureCause
from runtime.core.values.errors import UnknownSubject

# Retries do not help until an admin or author changes something.
PERMANENT = frozenset({FailureCause.SETUP, FailureCause.REQUEST})

# Seconds between two rounds of all models: doubled from the first to the longest.
MIN_ROUND_SECONDS = 5.0
MAX_ROUND_SECONDS = 300.0

# How long a rejected key, address or name is retried before people are asked: a deploy may be running. A model that
# gives no usable reply is not called for longer either, because each of its replies is paid for.
SETUP_TIMEOUT = timedelta(minutes=1)
ASKED_SOON = frozenset({FailureCause.SETUP, FailureCause.REPLY})

# How long models are called whose replies break off or come late: the network may be at fault, but each is paid for.
PAID_TIMEOUT = timedelta(minutes=10)
CUT_OFF = {
    "message": "a person's message cut the reply off",
    "lost": "the worker that received the reply was lost",
}

# Causes for which another provider may reply. A wrong key is not among them, because people must see it.
FALLBACK_CAUSES = frozenset(
    {
        FailureCause.LIMIT,
        FailureCause.PROVIDER,
        FailureCause.REPLY,
        FailureCause.NETWORK,
        FailureCause.TIME,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimitWait:
    """The model call of `agent` waits until `until`. Its provider has put it off `tries` times since `since`."""

    frame: str
    agent: str
    model: str
    until: datetime
    since: datetime
    tries: int


def recover(
    now: Continuation, writes: Mapping[str, tuple[str, ...]] | None = None
) -> tuple[RetryScheduled | OutcomeUnknown, ...]:
    """Return the events for a worker that takes over: every started call has lost its worker.

    `writes` names, by frame, the tools that have become writes since the frame opened.
    """
    return tuple(
        on_worker_lost(frame.id, call, is_write=call.tool in (writes or {}).get(frame.id, ()))
        for frame in now.frames.values()
        for call in frame.calls
        if call.state is CallState.STARTED
    )


def on_worker_lost(
    frame: str, call: Call, *, is_write: bool = False
) -> RetryScheduled | OutcomeUnknown:
    """Return the event for a started call whose worker died. It does not count as a failed attempt.

    `is_write` says that the tool is a `write` in the current version. The stricter of both classes applies.
    """
    error = "the worker that ran it was lost"
    if is_write or not EFFECT_CLASSES[_require_terms(call).effect].repeats_unasked:
        return OutcomeUnknown(frame=frame, call=call.id, attempt=call.attempt, error=error)
    return RetryScheduled(
        frame=frame, call=call.id, attempt=call.attempt, cause="lost", error=error
    )


def on_unknown(
    frame: str,
    call: Call,
    error: str,
    *,
    at: datetime,
    jitter: float,
    cause: FailureCause = FailureCause.TOOL,
) -> RetryScheduled | OutcomeUnknown | ToolFailed:
    """Return the event for a call that raised an error and whose outcome is unknown."""
    if not EFFECT_CLASSES[_require_terms(call).effect].repeats_unasked:
        return OutcomeUnknown(frame=frame, call=call.id, attempt=call.attempt, error=error)
    return on_not_performed(frame, call, error, retry_after=None, at=at, jitter=jitter, cause=cause)


def on_not_performed(
    frame: str,
    call: Call,
    error: str,
    *,
    retry_after: float | None,
    at: datetime,
    jitter: float,
    cause: FailureCause = FailureCause.TOOL,
) -> RetryScheduled | ToolFailed:
    """Return the event for a call that was certainly not performed. Every effect class may be retried."""
    policy = _require_terms(call).retry
    if call.failures + 1 >= policy.attempts or not _is_worth_retry(policy, cause):
        return ToolFailed(frame=frame, call=call.id, attempt=call.attempt, error=error)
    return RetryScheduled(
        frame=frame,
        call=call.id,
        attempt=call.attempt,
        cause="error",
        error=error,
        until=at + _wait(policy, call.failures, retry_after, jitter),
    )


def compute_longest_wait(policy: RetryPolicy) -> float:
    """Return the seconds from which a wait that a provider asks for makes the worker call the fallback model."""
    return max(policy.ceiling, MIN_ROUND_SECONDS)


def on_no_reply(
    frame: Frame,
    error: str,
    *,
    retryable: bool,
    retry_after: float | None,
    at: datetime,
    jitter: float,
    cause: FailureCause = FailureCause.PROVIDER,
    model: str = "",
    fallback: str = "",
    partial: str = "",
    provider_text: str = "",
    tokens: int = 0,
    usage: dict[str, int] | None = None,
    cost: int | None = None,
    timeout: timedelta,
) -> RetryScheduled | ModelFailed:
    """Return the event for a model call without a reply; `retryable` says whether a retry can help.

    Once the attempts at `model` are used up, or its provider asks for a wait over the ceiling, the worker calls the
    `fallback` model at once, if there is one and the cause may spare it. Otherwise it calls all models again later.
    After `timeout` people are asked, sooner if waiting does not help or costs money.
    """
    policy = frame.terms.retry
    since, rounds = (frame.outage.since, frame.outage.rounds) if frame.outage else (at, 0)
    attempts = policy.attempts if rounds == 0 else 1
    wait, instead, asks_at = _wait(policy, frame.failures, retry_after, jitter), "", None
    seconds_asked = (retry_after or 0.0) if cause in FALLBACK_CAUSES else 0.0
    spent = frame.failures + 1 >= attempts or seconds_asked > compute_longest_wait(policy)
    if not retryable or not _is_worth_retry(policy, cause) or spent:
        if fallback and cause in FALLBACK_CAUSES:
            wait, instead = timedelta(), fallback
        elif not retryable or cause is FailureCause.REQUEST:
            return ModelFailed(
                frame=frame.id, error=error, model=model, partial=partial, said=provider_text
            )
        else:
            longest = PAID_TIMEOUT if usage else timedelta.max
            if cause in ASKED_SOON:
                longest = SETUP_TIMEOUT
            asks_at = since + min(timeout, longest)
            wait = min(_round_wait(rounds, retry_after, jitter), max(asks_at - at, timedelta()))
    return RetryScheduled(
        frame=frame.id,
        call=None,
        attempt=frame.attempt,
        cause="error",
        error=error,
        until=at + wait,
        model=model,
        instead=instead,
        partial=partial,
        said=provider_text,
        since=since,
        asks_at=asks_at,
        limited=cause is FailureCause.LIMIT,
        tokens=tokens,
        usage=usage or {},
        cost=cost,
    )


def on_cut(
    frame: Frame,
    cause: Literal["message", "lost"],
    *,
    at: datetime,
    model: str = "",
    partial: str = "",
    tokens: int = 0,
    usage: dict[str, int] | None = None,
    cost: int | None = None,
) -> RetryScheduled:
    """Return the event for a reply that a message cut off or that its worker took along. The call follows at once.

    The provider did not fail, so this does not count as a failure.
    """
    return RetryScheduled(
        frame=frame.id,
        call=None,
        attempt=frame.attempt,
        cause=cause,
        error=CUT_OFF[cause],
        until=at,
        model=model,
        partial=partial,
        tokens=tokens,
        usage=usage or {},
        cost=cost,
    )


def _is_worth_retry(policy: RetryPolicy, cause: FailureCause) -> bool:
    return cause not in PERMANENT if policy.on is None else cause in policy.on


def _wait(
    policy: RetryPolicy, failures: int, retry_after: float | None, jitter: float
) -> timedelta:
    """Return the wait before a retry: the one that the other side asked for, up to the ceiling, or a random one.

    `jitter` is in [0, 1).
    """
    if retry_after is not None:
        return timedelta(seconds=min(max(retry_after, 0.0), policy.ceiling))
    return timedelta(seconds=jitter * min(policy.ceiling, policy.base * 2 ** min(failures, 60)))


def _round_wait(rounds: int, retry_after: float | None, jitter: float) -> timedelta:
    """Return a pause in the upper half of the bound, or the one that the other side asked for if it is longer."""
    bound = min(MAX_ROUND_SECONDS, MIN_ROUND_SECONDS * 2 ** min(rounds, 60))
    seconds_asked = min(max(retry_after or 0.0, 0.0), MAX_RETRY_AFTER)
    return timedelta(seconds=max(seconds_asked, bound * (1 + jitter) / 2))


def _require_terms(call: Call) -> CallOptions:
    if call.terms is None:
        raise UnknownSubject("terms of call", call.id)
    return call.terms


def rate_limit_waits(now: Continuation) -> tuple[RateLimitWait, ...]:
    """Return the calls that wait for a rate limit, the oldest frame first. A paused or ending run has none."""
    if now.is_paused or now.phase is not Phase.STARTED:
        return ()
    return tuple(
        RateLimitWait(
            frame=frame.id,
            agent=frame.agent,
            model=frame.outage.limited,
            until=frame.until,
            since=frame.outage.since,
            tries=frame.outage.tries,
        )
        for frame in now.frames.values()
        if frame.state is FrameState.RETRYING
        and frame.until is not None
        and frame.outage is not None
        and frame.outage.limited
    )
