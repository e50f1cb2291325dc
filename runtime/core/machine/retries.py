"""What follows an attempt that brought no result: another one and when, or the end of trying.

Chance and the time of day come in as arguments. The wait before an attempt is drawn evenly from
zero to a bound that doubles ("full jitter"), unless the other side said how long it wants to be
left alone; no wait is longer than the policy's ceiling. Errors are told apart by whose fault they
are: a policy says which of them are worth another attempt.

A model call does not fail because its provider does. Once the attempts at each of the agent's models are used
up, all of them are asked in rounds, further and further apart, until one replies or people are asked.
"""

from datetime import datetime, timedelta

from runtime.core.call_options import RetryPolicy, Terms
from runtime.core.continuation import Call, Frame
from runtime.core.effect_classes import RULES
from runtime.core.enums import Blame
from runtime.core.errors import UnknownSubject
from runtime.core.events import ModelFailed, OutcomeUnknown, RetryScheduled, ToolFailed

# Somebody has to change something first.
LASTING = frozenset({Blame.SETUP, Blame.REQUEST})

# Between two rounds of asking every model: doubled from the first to the longest.
FIRST_ROUND = 5.0
LONGEST_ROUND = 300.0

# How long a key, address or name that is refused is tried before people are asked: a deploy may be under way.
SETUP_PATIENCE = timedelta(minutes=1)

# Faults that another provider need not share. A wrong key is to be seen, not to be got round.
ELSEWHERE = frozenset({Blame.LIMIT, Blame.PROVIDER, Blame.NETWORK, Blame.TIME})


def lost(frame: str, call: Call, *, is_write: bool = False) -> RetryScheduled | OutcomeUnknown:
    """A started call whose worker died. A death is not the tool's fault and uses up no attempt.

    `is_write` says that its tool is one by now: the stricter of frozen and current class holds.
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
    """A tool that raised something which does not say what became of the call."""
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
    """A call that certainly did not happen and may be tried again, whatever its effect class."""
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
    """A model call that brought no reply; `again` says whether trying again can help.

    Once the attempts at `model` are used up, the `other` one is asked at once, if there is one and the
    fault need not be its as well. Without one, all are asked again later; after `patience` people are asked.
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
    """`chance` is in [0, 1). What the other side asks for counts, up to the ceiling."""
    if after is not None:
        return timedelta(seconds=min(max(after, 0.0), policy.ceiling))
    return timedelta(seconds=chance * min(policy.ceiling, policy.base * 2 ** min(failures, 60)))


def _round_wait(rounds: int, after: float | None, chance: float) -> timedelta:
    """Spread over the upper half of the bound, or what the other side asks for if that is more."""
    bound = min(LONGEST_ROUND, FIRST_ROUND * 2 ** min(rounds, 60))
    asked = min(max(after or 0.0, 0.0), LONGEST_ROUND)
    return timedelta(seconds=max(asked, bound * (1 + chance) / 2))


def _terms(call: Call) -> Terms:
    if call.terms is None:
        raise UnknownSubject("terms of call", call.id)
    return call.terms
