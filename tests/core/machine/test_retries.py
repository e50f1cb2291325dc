"""After a failed attempt: whether it is repeated, the delay, and the model of the next one."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from runtime.core.call_options import MODEL_OPTIONS, ModelOptions, RetryPolicy
from runtime.core.continuation import Call, Frame, FrameState, Outage
from runtime.core.documents.codec import decode_entry
from runtime.core.enums import FailureCause
from runtime.core.errors import UnknownSubject
from runtime.core.events import (
    FrameOpened,
    ModelFailed,
    ModelReplied,
    Proposal,
    RetryScheduled,
    ToolFailed,
    WaitEnded,
)
from runtime.core.machine.replay import fold, initial
from runtime.core.machine.retries import (
    MAX_ROUND_SECONDS,
    MIN_ROUND_SECONDS,
    SETUP_TIMEOUT,
    on_no_reply,
    on_not_performed,
    on_unknown,
    on_worker_lost,
)
from tests.core.machine.events import begun, frame_of, opened, options
from tests.core.machine.walks import AT

POLICY = RetryPolicy(attempts=3, base=2.0, ceiling=10.0)
DAY = timedelta(days=1)
FRAME = frame_of(terms=ModelOptions(retry=POLICY, deadline=5.0))
CALL = Call(
    id="c1.0",
    tool="t",
    args={},
    attempt=1,
    terms=options(retry=POLICY),
)


def _asked(frame: Frame, cause: FailureCause, **more: object) -> RetryScheduled | ModelFailed:
    given = {
        "retryable": True,
        "retry_after": None,
        "at": AT,
        "jitter": 0.5,
        "model": "openai:a",
        "timeout": DAY,
        **more,
    }
    return on_no_reply(frame, "no", cause=cause, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("cause", FailureCause)
def test_a_lasting_fault_gets_no_other_attempt(cause: FailureCause) -> None:
    asked = _asked(FRAME, cause)
    called = on_not_performed("0", CALL, "no", retry_after=None, at=AT, jitter=0.5, cause=cause)
    if cause in (FailureCause.SETUP, FailureCause.REQUEST):
        assert isinstance(called, ToolFailed)
        assert isinstance(asked, ModelFailed) is (cause is FailureCause.REQUEST)
    else:
        assert isinstance(asked, RetryScheduled)
        assert isinstance(called, RetryScheduled)
        assert asked.until == called.until == AT + timedelta(seconds=1)


def test_a_retry_policy_lists_the_repeated_failures() -> None:
    policy = replace(POLICY, on=(FailureCause.LIMIT, FailureCause.SETUP))
    frame = replace(FRAME, terms=ModelOptions(retry=policy))
    attempts = {
        cause: _asked(frame, cause) for cause in FailureCause if cause is not FailureCause.REQUEST
    }
    rounds = {cause for cause, event in attempts.items() if getattr(event, "asks_at", None)}
    assert rounds == set(attempts) - {FailureCause.SETUP, FailureCause.LIMIT}


@pytest.mark.parametrize("jitter", [0.0, 0.25, 0.999])
@pytest.mark.parametrize(
    ("failures", "bound"), [(0, 2.0), (1, 4.0), (2, 8.0), (3, 10.0), (9999, 10.0)]
)
def test_the_backoff_doubles_to_its_ceiling_with_full_jitter(
    jitter: float, failures: int, bound: float
) -> None:
    terms = ModelOptions(retry=replace(POLICY, attempts=10**6))
    event = _asked(
        replace(FRAME, terms=terms, failures=failures), FailureCause.PROVIDER, jitter=jitter
    )
    assert isinstance(event, RetryScheduled)
    assert event.until == AT + timedelta(seconds=jitter * bound)


def test_after_sixty_failures_the_bound_doubles_no_more() -> None:
    policy = RetryPolicy(attempts=10**6, base=2.0**-60, ceiling=10.0)
    for failures, bound in ((59, 0.5), (60, 1.0), (61, 1.0), (9999, 1.0)):
        frame = replace(FRAME, terms=ModelOptions(retry=policy), failures=failures)
        event = _asked(frame, FailureCause.PROVIDER, jitter=1.0)
        assert isinstance(event, RetryScheduled)
        assert event.until == AT + timedelta(seconds=bound)


@pytest.mark.parametrize(("failures", "ends"), [(0, False), (1, False), (2, True), (3, True)])
def test_a_call_is_tried_as_often_as_its_policy_says(failures: int, ends: bool) -> None:
    call = replace(CALL, failures=failures)
    event = on_not_performed("0", call, "no", retry_after=None, at=AT, jitter=0.5)
    assert isinstance(event, ToolFailed) is ends


def test_a_call_that_was_never_judged_has_not_been_started() -> None:
    call = replace(CALL, terms=None)
    with pytest.raises(UnknownSubject) as raised:
        on_worker_lost("0", call)
    assert raised.value.subject == CALL.id
    with pytest.raises(UnknownSubject):
        on_not_performed("0", call, "no", retry_after=None, at=AT, jitter=0.5)


@pytest.mark.parametrize(("after", "waits"), [(3.0, 3.0), (-1.0, 0.0), (3600.0, 10.0)])
def test_a_requested_delay_counts_up_to_the_ceiling(after: float, waits: float) -> None:
    event = _asked(FRAME, FailureCause.LIMIT, retry_after=after)
    assert isinstance(event, RetryScheduled)
    assert event.until == AT + timedelta(seconds=waits)


@pytest.mark.parametrize("cause", FailureCause)
def test_only_a_model_specific_failure_falls_back(cause: FailureCause) -> None:
    event = _asked(replace(FRAME, failures=2), cause, fallback="openai:b", partial="half a")
    shared = cause in (
        FailureCause.SETUP,
        FailureCause.REQUEST,
        FailureCause.WORKER,
        FailureCause.TOOL,
    )
    assert isinstance(event, ModelFailed) is (cause is FailureCause.REQUEST)
    if not shared:
        assert isinstance(event, RetryScheduled)
        assert (event.instead, event.until) == ("openai:b", AT)
    assert getattr(event, "instead", "") == ("" if shared else "openai:b")
    assert (event.model, event.partial) == ("openai:a", "half a")


def test_without_another_model_a_failure_names_none() -> None:
    for again in (True, False):
        event = on_no_reply(
            FRAME, "no", retryable=again, retry_after=None, at=AT, jitter=0.5, timeout=DAY
        )
        assert (event.model, event.partial) == ("", "")
        assert getattr(event, "instead", "") == ""


def test_each_turn_begins_again_with_the_first_model() -> None:
    now = fold(
        initial(UUID(int=1)),
        [
            begun(),
            opened(model=FRAME.terms),
        ],
    )
    asked = []
    for _ in range(5):
        frame = now.frame("0")
        model = frame.model or "openai:a"
        asked.append(model)
        event = _asked(
            frame, FailureCause.PROVIDER, model=model, fallback="openai:b" * (model[-1] == "a")
        )
        now = fold(now, [event, WaitEnded(frame="0", call=None)])
    assert asked == ["openai:a"] * 3 + ["openai:b"] * 2
    assert now.frame("0").attempt == 6
    last = _asked(now.frame("0"), FailureCause.PROVIDER, model="openai:b")
    now = fold(now, [last, WaitEnded(frame="0", call=None)])
    assert (now.frame("0").model, now.frame("0").failures) == ("", 0)
    calls = (Proposal(tool="t", args={}),)
    reply = ModelReplied(frame="0", reply={}, text="", calls=calls, usage={}, model="openai:b")
    now = fold(now, [reply])
    assert (now.frame("0").model, now.frame("0").failures) == ("", 0)
    assert (now.frame("0").state, now.frame("0").outage) == (FrameState.ACTING, None)


def _out(rounds: int, since: datetime = AT) -> Frame:
    """The frame after every model was asked so many times in vain."""
    return replace(FRAME, outage=Outage(since=since, error="503", rounds=rounds, asks_at=AT + DAY))


@pytest.mark.parametrize("cause", sorted(set(FailureCause) - {FailureCause.REQUEST}))
def test_a_provider_that_is_out_fails_no_run(cause: FailureCause) -> None:
    for frame in (replace(FRAME, failures=2), _out(1), _out(10_000)):
        event = _asked(frame, cause)
        assert isinstance(event, RetryScheduled)
        assert event.asks_at is not None


@pytest.mark.parametrize("jitter", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("rounds", [0, 1, 3, 6, 9999])
def test_rounds_get_rarer_up_to_the_longest_wait(rounds: int, jitter: float) -> None:
    event = _asked(replace(_out(rounds), failures=2), FailureCause.PROVIDER, jitter=jitter)
    assert isinstance(event, RetryScheduled)
    assert event.until is not None
    bound = min(MAX_ROUND_SECONDS, MIN_ROUND_SECONDS * 2 ** min(rounds, 20))
    assert event.until - AT == timedelta(seconds=bound * (1 + jitter) / 2)


def test_a_round_waits_as_long_as_the_provider_asks() -> None:
    for after, waits in ((60.0, 60.0), (3600.0, MAX_ROUND_SECONDS)):
        event = _asked(_out(1), FailureCause.LIMIT, retry_after=after)
        assert isinstance(event, RetryScheduled)
        assert event.until == AT + timedelta(seconds=waits)


def test_people_are_asked_a_timeout_after_the_first_failure() -> None:
    begun = AT - timedelta(hours=1)
    event = _asked(_out(3, since=begun), FailureCause.PROVIDER)
    assert isinstance(event, RetryScheduled)
    assert (event.since, event.asks_at) == (begun, begun + DAY)
    late = _asked(_out(3, since=AT - 2 * DAY), FailureCause.PROVIDER)
    assert isinstance(late, RetryScheduled)
    assert late.until == AT


def test_people_are_asked_soon_about_a_refused_key() -> None:
    for timeout, soon in ((DAY, SETUP_TIMEOUT), (timedelta(), timedelta())):
        event = _asked(FRAME, FailureCause.SETUP, timeout=timeout)
        assert isinstance(event, RetryScheduled)
        assert event.asks_at == AT + soon


def test_a_failure_keeps_the_delay_cause_and_words_it_came_with() -> None:
    asked = on_not_performed("0", CALL, "no", retry_after=3.0, at=AT, jitter=0.5)
    assert isinstance(asked, RetryScheduled)
    assert asked.until == AT + timedelta(seconds=3)
    terms = options(retry=replace(POLICY, on=(FailureCause.TIME,)))
    for cause, kind in ((FailureCause.TIME, RetryScheduled), (FailureCause.NETWORK, ToolFailed)):
        call = replace(CALL, terms=terms)
        assert type(on_unknown("0", call, "no", at=AT, jitter=0.5, cause=cause)) is kind
    for cause in (FailureCause.REQUEST, FailureCause.PROVIDER):
        assert _asked(FRAME, cause, said="status 400").said == "status 400"


def test_an_entry_without_policies_gets_their_old_meaning() -> None:
    text = (
        '{"schema":1,"at":"2026-01-01T00:00:00+00:00","events":[{"frame":"0","agent":"a",'
        '"fingerprint":"f","prompt":"p","plan":null,"input":{},"parent":null,"call":null,'
        '"type":"FrameOpened"},{"frame":"0","call":null,"attempt":1,"cause":"error","error":"x",'
        '"until":null,"type":"RetryScheduled"}]}'
    )
    entry = decode_entry(text)
    assert entry.at == datetime(2026, 1, 1, tzinfo=UTC)
    opened, retry = entry.events
    assert isinstance(opened, FrameOpened)
    assert opened.model == MODEL_OPTIONS
    assert isinstance(retry, RetryScheduled)
    assert (retry.model, retry.instead, retry.partial) == ("", "", "")
