"""After a failed attempt: whether it is repeated, the delay, and the model of the next one."""

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from runtime.core.run import retries
from runtime.core.run.continuation import Call, Frame, FrameState, Outage
from runtime.core.run.events import (
    ModelFailed,
    OutcomeUnknown,
    RetryScheduled,
    ToolFailed,
    WaitEnded,
)
from runtime.core.run.reducer import fold, make_initial_state
from runtime.core.values.call_options import ModelOptions, RetryPolicy
from runtime.core.values.enums import EffectClass, FailureCause
from runtime.core.values.errors import UnknownSubject
from tests.core.run.events import AT, begun, frame_of, opened, options, replied

POLICY = RetryPolicy(attempts=3, base=2.0, ceiling=10.0)
DAY = timedelta(days=1)
FRAME = frame_of(terms=ModelOptions(retry=POLICY, deadline=5.0))
CALL = Call(id="c1.0", tool="t", args={}, attempt=1, terms=options(retry=POLICY))
NOT_DONE: dict[str, Any] = {"retry_after": None, "at": AT, "jitter": 0.5}


def _asked(frame: Frame, cause: FailureCause, **more: Any) -> RetryScheduled | ModelFailed:
    given = {"retryable": True, "model": "openai:a", "timeout": DAY, **NOT_DONE, **more}
    return retries.on_no_reply(frame, "no", cause=cause, **given)


def _again(frame: Frame, cause: FailureCause, **more: Any) -> RetryScheduled:
    event = _asked(frame, cause, **more)
    assert isinstance(event, RetryScheduled)
    return event


@pytest.mark.parametrize("cause", FailureCause)
def test_a_lasting_fault_gets_no_other_attempt(cause: FailureCause) -> None:
    asked = _asked(FRAME, cause)
    called = retries.on_not_performed("0", CALL, "no", **NOT_DONE, cause=cause)
    if cause in (FailureCause.SETUP, FailureCause.REQUEST):
        assert isinstance(called, ToolFailed)
        assert isinstance(asked, ModelFailed) is (cause is FailureCause.REQUEST)
    else:
        assert isinstance(asked, RetryScheduled)
        assert isinstance(called, RetryScheduled)
        assert asked.until == called.until == AT + timedelta(seconds=1)


@pytest.mark.parametrize("jitter", [0.0, 0.25, 1.0])
@pytest.mark.parametrize(
    ("base", "failures", "bound"),
    [(2.0, 0, 2.0), (2.0, 1, 4.0), (2.0, 3, 10.0), (2.0**-60, 59, 0.5), (2.0**-60, 61, 1.0)],
)
def test_the_backoff_doubles_to_its_ceiling_with_full_jitter(
    jitter: float, base: float, failures: int, bound: float
) -> None:
    terms = ModelOptions(retry=RetryPolicy(attempts=10**6, base=base, ceiling=10.0))
    frame = replace(FRAME, terms=terms, failures=failures)
    event = _again(frame, FailureCause.PROVIDER, jitter=jitter)
    assert event.until == AT + timedelta(seconds=jitter * bound)


@pytest.mark.parametrize(("failures", "ends"), [(0, False), (1, False), (2, True), (3, True)])
def test_a_call_is_tried_as_often_as_its_policy_says(failures: int, ends: bool) -> None:
    event = retries.on_not_performed("0", replace(CALL, failures=failures), "no", **NOT_DONE)
    assert isinstance(event, ToolFailed) is ends


@pytest.mark.parametrize("effect", EffectClass)
def test_only_a_write_with_an_unknown_outcome_is_in_doubt(effect: EffectClass) -> None:
    call = replace(CALL, terms=options(effect))
    after = OutcomeUnknown if effect is EffectClass.WRITE else RetryScheduled
    assert type(retries.on_worker_lost("0", call)) is after
    assert type(retries.on_unknown("0", call, "it raised", at=AT, jitter=0.5)) is after
    assert type(retries.on_worker_lost("0", call, is_write=True)) is OutcomeUnknown
    assert type(retries.on_not_performed("0", call, "busy", **NOT_DONE)) is RetryScheduled


def test_a_call_that_was_never_judged_has_not_been_started() -> None:
    with pytest.raises(UnknownSubject) as raised:
        retries.on_worker_lost("0", replace(CALL, terms=None))
    assert raised.value.subject == CALL.id


@pytest.mark.parametrize(("after", "waits"), [(3.0, 3.0), (-1.0, 0.0), (3600.0, 10.0)])
def test_a_requested_delay_counts_up_to_the_ceiling(after: float, waits: float) -> None:
    until = AT + timedelta(seconds=waits)
    event = _again(FRAME, FailureCause.WORKER, retry_after=after)
    assert (event.until, event.asks_at) == (until, None)
    called = retries.on_not_performed("0", CALL, "no", **NOT_DONE | {"retry_after": after})
    assert isinstance(called, RetryScheduled)
    assert called.until == until


@pytest.mark.parametrize("cause", FailureCause)
def test_only_a_model_specific_failure_falls_back(cause: FailureCause) -> None:
    event = _asked(replace(FRAME, failures=2), cause, fallback="openai:b", partial="half a")
    kept = (FailureCause.SETUP, FailureCause.REQUEST, FailureCause.WORKER, FailureCause.TOOL)
    assert isinstance(event, ModelFailed) is (cause is FailureCause.REQUEST)
    assert getattr(event, "instead", "") == ("" if cause in kept else "openai:b")
    if cause not in kept:
        assert isinstance(event, RetryScheduled)
        assert event.until == AT
    assert (event.model, event.partial) == ("openai:a", "half a")


def test_without_another_model_a_failure_names_none() -> None:
    for retryable in (True, False):
        event = retries.on_no_reply(FRAME, "no", retryable=retryable, timeout=DAY, **NOT_DONE)
        assert (event.model, event.partial, getattr(event, "instead", "")) == ("", "", "")


def test_each_turn_begins_again_with_the_first_model() -> None:
    now = fold(make_initial_state(UUID(int=1)), [begun(), opened(model=FRAME.terms)])
    asked = []
    for _ in range(6):
        frame = now.frame("0")
        model = frame.model or "openai:a"
        asked.append(model)
        fallback = "openai:b" * (model[-1] == "a")
        event = _asked(frame, FailureCause.PROVIDER, model=model, fallback=fallback)
        now = fold(now, [event, WaitEnded(frame="0", call=None)])
    assert asked == ["openai:a"] * 3 + ["openai:b"] * 3
    frame = now.frame("0")
    assert (frame.attempt, frame.model, frame.failures) == (7, "", 0)
    frame = fold(now, [replied("t", model="openai:b")]).frame("0")
    assert (frame.state, frame.model, frame.failures) == (FrameState.ACTING, "", 0)
    assert frame.outage is None


def _out(rounds: int, **more: Any) -> Frame:
    """The frame after every model was asked so many times in vain."""
    known: dict[str, Any] = {"since": AT, "error": "503", "asks_at": AT + DAY}
    return replace(FRAME, outage=Outage(rounds=rounds, **known | more))


@pytest.mark.parametrize("cause", sorted(set(FailureCause) - {FailureCause.REQUEST}))
def test_a_provider_that_is_out_fails_no_run(cause: FailureCause) -> None:
    for frame in (replace(FRAME, failures=2), _out(1), _out(10_000)):
        assert _again(frame, cause).asks_at is not None


@pytest.mark.parametrize("jitter", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("rounds", [0, 1, 3, 6, 9999])
def test_rounds_get_rarer_up_to_the_longest_wait(rounds: int, jitter: float) -> None:
    event = _again(replace(_out(rounds), failures=2), FailureCause.PROVIDER, jitter=jitter)
    bound = min(retries.MAX_ROUND_SECONDS, retries.MIN_ROUND_SECONDS * 2 ** min(rounds, 20))
    assert event.until == AT + timedelta(seconds=bound * (1 + jitter) / 2)


def test_an_outage_counts_from_its_first_attempt() -> None:
    now, counts = fold(make_initial_state(UUID(int=1)), [begun(), opened(model=FRAME.terms)]), []
    for cause in (FailureCause.PROVIDER, FailureCause.LIMIT, FailureCause.PROVIDER):
        now = fold(now, [_again(now.frame("0"), cause), WaitEnded(frame="0", call=None)])
        outage = now.frame("0").outage
        assert outage is not None
        counts.append((outage.rounds, outage.tries))
    assert counts == [(0, 0), (0, 1), (1, 1)]


def test_a_model_waits_an_hour_at_most_if_its_provider_asks() -> None:
    for frame in (FRAME, _out(1)):
        for after, waits in ((60.0, 60.0), (3600.0, 3600.0), (86400.0, 3600.0)):
            event = _again(frame, FailureCause.LIMIT, retry_after=after)
            assert event.until == AT + timedelta(seconds=waits)
    other = _asked(FRAME, FailureCause.LIMIT, retry_after=3600.0, fallback="openai:b")
    assert isinstance(other, RetryScheduled)
    assert (other.until, other.instead) == (AT, "openai:b")


def test_people_are_asked_a_timeout_after_the_first_failure() -> None:
    hour = AT - timedelta(hours=1)
    event = _again(_out(3, since=hour), FailureCause.PROVIDER)
    assert (event.since, event.asks_at) == (hour, hour + DAY)
    assert _again(_out(3, since=AT - 2 * DAY), FailureCause.PROVIDER).until == AT
    for timeout, soon in ((DAY, retries.SETUP_TIMEOUT), (timedelta(), timedelta())):
        assert _again(FRAME, FailureCause.SETUP, timeout=timeout).asks_at == AT + soon
        unusable = _again(replace(FRAME, failures=2), FailureCause.REPLY, timeout=timeout)
        assert unusable.asks_at == AT + soon


def test_a_model_whose_replies_all_break_off_is_paid_a_few_times() -> None:
    now = fold(make_initial_state(UUID(int=1)), [begun(), opened(model=FRAME.terms)])
    at, calls = AT, 0
    while True:
        paid = {"usage": {"input_tokens": 9}, "at": at, "jitter": 0.0}
        event = _again(now.frame("0"), FailureCause.NETWORK, **paid)
        calls += 1
        if event.until == event.asks_at:
            break
        now = fold(now, [event, WaitEnded(frame="0", call=None)])
        assert event.until is not None
        at = event.until
    assert calls == POLICY.attempts + 8


def test_a_failure_keeps_the_cause_and_words_it_came_with() -> None:
    call = replace(CALL, terms=options(retry=replace(POLICY, on=(FailureCause.TIME,))))
    for cause, kind in ((FailureCause.TIME, RetryScheduled), (FailureCause.NETWORK, ToolFailed)):
        assert type(retries.on_unknown("0", call, "no", at=AT, jitter=0.5, cause=cause)) is kind
    for cause in (FailureCause.REQUEST, FailureCause.PROVIDER):
        assert _asked(FRAME, cause, provider_text="status 400").said == "status 400"
