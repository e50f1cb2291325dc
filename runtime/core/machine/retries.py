"""Decides what follows an attempt without a result: a retry and its time, or a failure.

Chance and time are arguments. The wait before a retry is drawn evenly from zero to a bound that doubles ("full
jitter"), unless the other side asked for a wait. No wait exceeds the policy's ceiling. A policy says which causes of a
failure are worth a retry.

A failing provider does not fail a model call. Once the attempts at each of the agent's models are used up, the worker
calls all of them in rounds with growing pauses, until one replies or people are asked.
"""

from datetime import datetime, timedelta

from runtime.core.call_options import RetryPolicy, Terms
from runtime.core.continuation import Call, Frame
from runtime.core.effect_classes import RULES
from runtime.core.enums import Blame
from runtime.core.errors import UnknownSubject
from runtime.core.events import ModelFailed, OutcomeUnknown, RetryScheduled, ToolFailed

# Retries do not help until an admin or author changes something.
LASTING = frozenset({Blame.SETUP, Blame.REQUEST})

# Seconds between two rounds of all models: doubled from the first to the longest.
FIRST_ROUND = 5.0
LONGEST_ROUND = 300.0

# How long a rejected key, address or name is retried before people are asked: a deploy may be running.
SETUP_PATIENCE = timedelta(minutes=1)

# Causes for which another provider may reply. A wrong key is not among them, because people must see it.
ELSEWHERE = frozenset({Blame.LIMIT, Blame.PROVIDER, Blame.NETWORK, Blame.TIME})


def lost(frame: str, call: Call, *, is_write: bool = False) -> RetryScheduled | OutcomeUnknown:
    """Return the event for a started call whose worker died. It does not count as a failed attempt.

    `is_write` says that the tool is a `write` in the current version. The stricter of both classes applies.
    """
    error = "the worker that ran it was lost"
    if is_write or not RULES[_terms(call).effect].repeats_unasked:
        return OutcomeUnknown(frame=frame, call=call.id, attempt=call.attempt, error=error)
    return RetryScheduled(
        frame=frame, call=call.id, attempt=call.attempt, cause="lost", error=error
    )


def uncertain(
    frame: str,
    call: Call,
    error: str,
    *,
    at: datetime,
    chance: float,
    blame: Blame = Blame.TOOL,
) -> RetryScheduled | OutcomeUnknown | ToolFailed:
    """Return the event for a call that raised an error and whose outcome is unknown."""
    if not RULES[_terms(call).effect].repeats_unasked:
        return OutcomeUnknown(frame=frame, call=call.id, attempt=call.attempt, error=error)
    return undone(frame, call, error, after=None, at=at, chance=chance, blame=blame)


def undone(
    frame: str,
    call: Call,
    error: str,
    *,
    after: float | None,
    at: datetime,
    chance: float,
    blame: Blame = Blame.TOOL,
) -> RetryScheduled | ToolFailed:
    """Return the event for a call that was certainly not performed. Every effect class may be retried."""
    policy = _terms(call).retry
    if call.failures + 1 >= policy.attempts or not _worth(policy, blame):
        return ToolFailed(frame=frame, call=call.id, attempt=call.attempt, error=error)
    return RetryScheduled(
        frame=frame,
        call=call.id,
        attempt=call.attempt,
        cause="error",
        error=error,
        until=at + _wait(policy, call.failures, after, chance),
    )


def unanswered(
    frame: Frame,
    error: str,
    *,
    again: bool,
    after: float | None,
    at: datetime,
    chance: float,
    blame: Blame = Blame.PROVIDER,
    model: str = "",
    other: str = "",
    partial: str = "",
    said: str = "",
    patience: timedelta,
) -> RetryScheduled | ModelFailed:
    """Return the event for a model call without a reply; `again` says whether a retry can help.

    Once the attempts at `model` are used up, the worker calls the `other` model at once, if there is one and the cause
    need not affect it. Otherwise it calls all models again later. After `patience` people are asked.
    """
    policy = frame.terms.retry
    since, rounds = (frame.outage.since, frame.outage.rounds) if frame.outage else (at, 0)
    attempts = policy.attempts if rounds == 0 else 1
    wait, instead, asks_at = _wait(policy, frame.failures, after, chance), "", None
    if not again or not _worth(policy, blame) or frame.failures + 1 >= attempts:
        if other and blame in ELSEWHERE:
            wait, instead = timedelta(), other
        elif not again or blame is Blame.REQUEST:
            return ModelFailed(frame=frame.id, error=error, model=model, partial=partial, said=said)
        else:
            asks_at = since + (min(patience, SETUP_PATIENCE) if blame is Blame.SETUP else patience)
            wait = min(_round_wait(rounds, after, chance), max(asks_at - at, timedelta()))
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
        said=said,
        since=since,
        asks_at=asks_at,
    )


def _worth(policy: RetryPolicy, blame: Blame) -> bool:
    return blame not in LASTING if policy.on is None else blame in policy.on


def _wait(policy: RetryPolicy, failures: int, after: float | None, chance: float) -> timedelta:
    """Return the wait before a retry: the one that the other side asked for, up to the ceiling, or a random one.

    `chance` is in [0, 1).
    """
    if after is not None:
        return timedelta(seconds=min(max(after, 0.0), policy.ceiling))
    return timedelta(seconds=chance * min(policy.ceiling, policy.base * 2 ** min(failures, 60)))


def _round_wait(rounds: int, after: float | None, chance: float) -> timedelta:
    """Return a pause in the upper half of the bound, or the one that the other side asked for if it is longer."""
    bound = min(LONGEST_ROUND, FIRST_ROUND * 2 ** min(rounds, 60))
    asked = min(max(after or 0.0, 0.0), LONGEST_ROUND)
    return timedelta(seconds=max(asked, bound * (1 + chance) / 2))


def _terms(call: Call) -> Terms:
    if call.terms is None:
        raise UnknownSubject("terms of call", call.id)
    return call.terms
