"""Small facts of the core that others build on, each said once."""

import json
from datetime import timedelta
from uuid import UUID

import pytest

from runtime.core import limits
from runtime.core.budgets import NO_LIMITS, NOTHING, Budget, Rates, tokens_of
from runtime.core.call_options import MODEL_OPTIONS, MODEL_RETRIES, TOOL_RETRIES
from runtime.core.commands import CancelRun, OpenFrame
from runtime.core.continuation import (
    MAX_REFUSALS,
    Call,
    CallState,
    Continuation,
    Pause,
    Phase,
)
from runtime.core.digest import action_digest
from runtime.core.documents.codec import decode_continuation
from runtime.core.enums import EffectClass, GateKind
from runtime.core.errors import IllegalTransition, NewerSchema, NotJson, UnknownSubject
from runtime.core.events import OutcomeUnknown, RetryScheduled
from runtime.core.ids import call_id, idempotency_key, turn_mark, turn_of
from runtime.core.machine.active_time import exhausted_at
from runtime.core.machine.budget_accounting import fits, limited
from runtime.core.machine.forks import without_permissions
from runtime.core.machine.planning import plan
from runtime.core.machine.retries import on_not_performed, on_unknown, on_worker_lost
from tests.core.machine.events import frame_of, options
from tests.core.machine.walks import AT

RUN = UUID(int=1)


def test_the_action_digest_keeps_its_value() -> None:
    digest = action_digest(
        tool="pay",
        schema="sha256:s",
        args={"to": "ada", "amount": 3},
        path=("outer", "pay"),
        effect=EffectClass.WRITE,
    )
    assert digest == ("sha256:6765ef32d9693f5400610e26dd01aa9862e51ce02aa040c30d4b0efbc1ef2127")


@pytest.mark.parametrize(
    ("given", "replied", "price"), [(0, 0, 0), (1, 0, 3), (0, 1, 15), (1_000_000, 2, 3_000_030)]
)
def test_a_price_is_by_the_million_tokens(given: int, replied: int, price: int) -> None:
    rates = Rates(input=3_000_000, output=15_000_000)
    assert rates.price(input=given, output=replied) == price


def test_a_price_is_rounded_up() -> None:
    assert Rates(input=1, output=1).price(input=1, output=0) == 1
    assert Rates(input=500_001, output=0).price(input=2, output=0) == 2


def test_a_call_is_known_by_its_turn_and_its_place_in_it() -> None:
    assert call_id(12, 3) == "c12.3"
    assert turn_of(call_id(12, 3)) == 12
    assert call_id(12, 3).startswith(turn_mark(12))
    assert not call_id(12, 3).startswith(turn_mark(1))


def test_tokens_are_those_given_and_those_replied() -> None:
    assert tokens_of({}) == 0
    assert tokens_of({"input_tokens": 5, "output_tokens": 3, "cache_read_tokens": 4}) == 8


def test_a_run_fails_at_the_limit_of_refused_calls() -> None:
    now = Continuation(run=RUN, phase=Phase.STARTED, agent="a", refusals=MAX_REFUSALS)
    (end,) = plan(now)
    assert isinstance(end, CancelRun)
    assert end.reason == "5 calls that could not be made"  # which the run's page says
    one_less = Continuation(run=RUN, phase=Phase.STARTED, agent="a", refusals=MAX_REFUSALS - 1)
    assert isinstance(plan(one_less)[0], OpenFrame)


@pytest.mark.parametrize(
    ("state", "attempt", "failures", "after"),
    [
        (CallState.RETRYING, 2, 1, CallState.UNKNOWN),
        (CallState.RETRYING, 2, 2, CallState.PROPOSED),
        (CallState.ADMITTED, 0, 0, CallState.PROPOSED),
        (CallState.ADMITTED, 1, 0, CallState.UNKNOWN),
        (CallState.GATED, 1, 0, CallState.UNKNOWN),
        (CallState.UNKNOWN, 1, 0, CallState.UNKNOWN),
        (CallState.RETURNED, 1, 0, CallState.RETURNED),
    ],
)
def test_an_unknown_write_stays_in_doubt_in_forks_and_copies(
    state: CallState, attempt: int, failures: int, after: CallState
) -> None:
    terms = options(EffectClass.WRITE)
    call = Call(
        id="c1.0", tool="t", args={}, state=state, terms=terms, attempt=attempt, failures=failures
    )
    frame = frame_of(calls=(call,))
    gone = without_permissions(Continuation(run=RUN, frames={"0": frame}))
    assert gone.call("0", "c1.0").state is after


@pytest.mark.parametrize("effect", EffectClass)
def test_only_a_write_with_an_unknown_outcome_is_in_doubt(effect: EffectClass) -> None:
    """This holds after a crash and after an error; calls of other classes are repeated."""
    terms = options(effect)
    call = Call(id="c1.0", tool="t", args={}, state=CallState.STARTED, terms=terms, attempt=1)
    after = OutcomeUnknown if effect is EffectClass.WRITE else RetryScheduled
    assert type(on_worker_lost("0", call)) is after
    assert type(on_unknown("0", call, "it raised", at=AT, jitter=0.5)) is after
    assert type(on_worker_lost("0", call, is_write=True)) is OutcomeUnknown
    assert (
        type(on_not_performed("0", call, "busy", retry_after=None, at=AT, jitter=0.5))
        is RetryScheduled
    )


@pytest.mark.parametrize(
    ("budget", "held"), [(None, False), (NO_LIMITS, False), (Budget(turns=1), True)]
)
def test_a_run_is_limited_only_by_its_budget(budget: Budget | None, held: bool) -> None:
    assert limited(Continuation(run=RUN, budget=budget)) is held


@pytest.mark.parametrize(
    ("of_run", "of_frame", "left"), [(None, 30.0, 25), (20.0, 30.0, 10), (60.0, 30.0, 25)]
)
def test_a_wait_ends_at_the_time_limit_of_run_or_frame(
    of_run: float | None, of_frame: float, left: int
) -> None:
    frame = frame_of(until=AT + timedelta(hours=1), budget=Budget(seconds=of_frame), since=5.0)
    now = Continuation(
        run=RUN,
        phase=Phase.STARTED,
        frames={"0": frame},
        budget=Budget(seconds=of_run),
        worked=10.0,
        ticking=AT,
    )
    assert exhausted_at(now) == AT + timedelta(seconds=left)


def test_an_event_without_cost_always_fits() -> None:
    now = Continuation(run=RUN, budget=Budget(turns=1))
    assert fits(now, OpenFrame(frame="0", agent="a", input=None), ()) is True


def test_a_minimal_document_is_read_with_defaults() -> None:
    gate = {"gate": str(RUN), "kind": "approval", "frame": "0", "call": "c1.0", "path": ["a"]}
    call = {"id": "c1.0", "tool": "t", "args": None}
    frame = {"id": "0", "agent": "a", "fingerprint": "f", "prompt": "p", "calls": [call]}
    document = {"schema": 2, "run": str(RUN), "frames": {"0": frame}, "pending": [gate]}
    now = decode_continuation(json.dumps(document))
    assert (now.position, now.head, now.phase, now.agent) == (0, "", Phase.NEW, "")
    assert (now.requester, now.refusals, now.cancelled_by, now.worked) == ("", 0, "", 0.0)
    assert (now.outcome, now.paused, now.budget, now.short) == (None, None, None, None)
    (pending,) = now.pending
    assert (pending.kind, pending.expires_at, pending.version) == (GateKind.APPROVAL, None, "")
    assert Pause(by="ada").reason == ""
    found = now.frame("0")
    assert (found.turn, found.attempt, found.failures, found.ticket) == (0, 1, 0, 0)
    assert (found.model, found.cleared, found.context, found.since) == ("", -1, 0, 0.0)
    assert (found.state, found.terms, found.spent) == ("asking", MODEL_OPTIONS, NOTHING)
    one = now.call("0", "c1.0")
    assert (one.state, one.attempt, one.failures) == (CallState.PROPOSED, 0, 0)


def test_the_idempotency_key_keeps_its_form() -> None:
    key = idempotency_key(RUN, "0.c1.0", "c2.0")
    assert key == "00000000-0000-0000-0000-000000000001/0.c1.0/c2.0"


def test_an_error_names_its_subject() -> None:
    illegal = IllegalTransition("Call", "closed", "ToolStarted", "0/c1.0")
    assert (illegal.machine, illegal.state, illegal.trigger) == ("Call", "closed", "ToolStarted")
    assert illegal.subject == "0/c1.0"
    unknown = UnknownSubject("gate", "g")
    assert (unknown.kind, unknown.subject) == ("gate", "g")
    assert NewerSchema(9).schema == 9
    assert (NotJson("a.b", "no").where, NotJson("a.b", "no").why) == ("a.b", "no")
    told = {
        illegal: "Call 0/c1.0 is closed",
        unknown: "there is no gate g",
        NewerSchema(9): "schema 9 is newer",
        NotJson("a.b", "no"): "a.b: no",
    }
    for error, words in told.items():
        assert str(error).startswith(words)


def test_attempts_and_deadlines_match_the_docs() -> None:
    assert (TOOL_RETRIES.attempts, TOOL_RETRIES.base, TOOL_RETRIES.ceiling) == (3, 0.5, 10.0)
    assert (MODEL_RETRIES.attempts, MODEL_RETRIES.base, MODEL_RETRIES.ceiling) == (6, 1.0, 60.0)
    assert (MODEL_OPTIONS.deadline, MODEL_OPTIONS.retry) == (120.0, MODEL_RETRIES)


def test_limits_match_the_docs() -> None:
    kilo = 1024
    assert (2 * kilo**2, 64 * kilo, 256 * kilo) == (
        limits.MAX_BODY,
        limits.MAX_INPUT,
        limits.MAX_ARGS,
    )
    assert (4 * kilo**2, 64 * kilo) == (limits.MAX_RESULT, limits.MAX_REPORTED)
    assert (64 * kilo, 400) == (limits.KEPT_INLINE, limits.PREVIEW)
    assert (kilo**2, 64 * kilo, 128) == (limits.MAX_REPLY, limits.MAX_SUMMARY, limits.MAX_CALLS)
    assert (limits.MAX_TOOL, limits.MAX_ERROR, limits.MAX_REASON, limits.MAX_KEY) == (
        200,
        2_000,
        2_000,
        200,
    )
    assert limits.MAX_INTEGER == 9_007_199_254_740_991
    assert (limits.MAX_MESSAGE, limits.MAX_UNDELIVERED) == (16_000, 20)
    assert limits.MAX_EVENT_DATA == 32_768
    assert (limits.MAX_EVENT_NAME, limits.MAX_MATCH) == (200, 4096)
    assert (limits.MAX_WAIT_DAYS, limits.MAX_MATCHED) == (366, 1_000)


def test_sizes_are_bytes_of_the_shortest_json() -> None:
    assert limits.size_of({"a": ["é", 1], "b": None}) == len('{"a":["é",1],"b":null}'.encode())
