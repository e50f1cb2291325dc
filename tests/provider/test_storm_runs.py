"""Storms of refusals and failures: all workers together hold back, every run finishes, and nothing is repeated.

A request is refused (429), broken off (500), cut, or ends in the middle as if it were complete. FAULTS_R9 says how
many runs there are.
"""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models import F

from agents.effect_handler import AgentEffects
from agents.llm.rate_limits import INTERVAL_FACTOR, Permit, RateLimits
from agents.models import RateLimit
from agents.sdk import RetryPolicy, ToolContext, tool
from agents.sdk.scripts import Turn, call, say, script
from runtime.control import verification
from runtime.core.values.budgets import BudgetLimits
from runtime.execution.effects.perform import perform
from runtime.models import Gate, Run
from runtime.ports.effects import ModelAnswer, RateLimited
from tests.support.engine import Engine, engine_of, events, start_run
from tests.support.provider.faults import Fault, storm
from tests.support.provider.server import Provider, serving
from tests.support.specs import Frame, registry_of, spec_of
from tests.system.fault_injection.harness.counts import count
from tests.system.fault_injection.harness.figures import say as tell

RUNS = count("R9", short=20, long=500)
WORKERS = 3
AT_ONCE = 24
CALLS = 2
BUDGET = BudgetLimits(turns=CALLS + 1, calls=CALLS)  # exactly enough for a run without faults

posted: Counter[str] = Counter()
_lock = threading.Lock()
PATIENT = RetryPolicy(attempts=1000, base=0.02, ceiling=0.2)
STUBBORN = RetryPolicy(attempts=10_000, base=1.0, ceiling=60.0)


@tool(effect="write")
def post(context: ToolContext, text: str, sheet: int) -> str:
    """Post one sheet of it."""
    with _lock:
        posted[context.key] += 1
    return f"{text} {sheet}"


@script
def _poster(turn: Turn) -> Any:
    done = len(turn.results)
    return call("post", text=turn.input["name"], sheet=done) if done < CALLS else say("Posted.")


MODEL = "openai:loopback"
POSTER = spec_of("poster", instructions="Post.", model=_poster, tools=[post], retry=PATIENT)
ECHO = spec_of("echo", model=script(lambda turn: say(turn.input["name"])), retry=STUBBORN)
REGISTRY = registry_of(POSTER, ECHO)


@pytest.fixture
def provider(by_hand: None, settings: Any) -> Iterator[Provider]:
    with serving(REGISTRY, settings) as one:
        yield one


def _post(worker: Engine, name: str) -> Run:
    run = start_run("poster", {"name": name}, budget=BUDGET)
    return worker.go_on(run, within=120 + 3 * RUNS)


def _post_all() -> list[Run]:
    """All runs at the same time, each by one of a few workers."""

    def post_one(number: int) -> Run:
        try:
            return _post(workers[number % WORKERS], str(number))
        finally:
            connection.close()

    with ExitStack() as stack:
        workers = [stack.enter_context(engine_of(REGISTRY, RateLimits())) for _ in range(WORKERS)]
        with ThreadPoolExecutor(min(RUNS, AT_ONCE)) as pool:
            return list(pool.map(post_one, range(RUNS)))


def test_runs_in_a_storm_finish_within_budget_and_repeat_nothing(provider: Provider) -> None:
    provider.weather = storm(0.8, seed=9)
    provider.retry_after = 0.002
    posted.clear()
    began_at = time.monotonic()
    runs = _post_all()
    trouble, asked = Counter(provider.happened), len(provider.bodies)
    used = Counter(event["type"] for run in runs for event in events(run.id))
    unsound = [run.id for run in runs if not verification.verify(run.id).is_consistent]
    tell(
        f"FIGURES storm: {RUNS} runs, {asked} requests, {sum(trouble.values()) / asked:.0%} of them in"
        f" trouble ({', '.join(f'{n} {kind}' for kind, n in sorted(trouble.items()))}),"
        f" {len(posted)} effects, {sum(posted.values()) - len(posted)} repeated,"
        f" {time.monotonic() - began_at:.0f} s"
    )
    assert Counter(run.status for run in runs) == {"completed": RUNS}
    assert (len(posted), set(posted.values())) == (RUNS * CALLS, {1})
    assert (used["ModelReplied"], used["ToolStarted"]) == (RUNS * (CALLS + 1), RUNS * CALLS)
    assert not Gate.objects.exists()  # no limit gate and no call in doubt
    assert unsound == []
    assert sum(trouble.values()) > asked / 2


def test_a_refusing_provider_is_not_hammered_by_all_workers(provider: Provider) -> None:
    """After the first refusals no worker asks before the time that they named, and then one asks for all."""
    provider.weather = lambda: Fault.RATE_LIMIT
    provider.retry_after = 60.0
    workers = [AgentEffects(REGISTRY, rate_limits=RateLimits()) for _ in range(WORKERS)]
    queue_numbers = dict.fromkeys(range(AT_ONCE), 0)

    def ask(number: int) -> bool:
        """Whether the call had to wait before it was sent."""
        request = Frame(workers[number % WORKERS], "echo", {"name": str(number)}).request()
        request = replace(request, queue_number=queue_numbers[number])
        outcome = perform(workers[number % WORKERS], request)
        if isinstance(outcome, RateLimited):
            queue_numbers[number] = outcome.queue_number
        return isinstance(outcome, RateLimited)

    requests = list[int]()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for past in (0, 0, 60):
            _pass(timedelta(seconds=past))
            waits = sum(pool.map(ask, range(AT_ONCE)))
            requests.append(len(provider.bodies) - sum(requests))
            assert requests[-1] == AT_ONCE - waits
    assert requests[1:] == [0, 1]
    assert sorted(queue_numbers.values()) == list(range(1, AT_ONCE + 1))


def test_a_delay_by_the_rate_limit_uses_no_attempt(provider: Provider) -> None:
    once = replace(ECHO, retry=RetryPolicy(attempts=1, base=0.0, ceiling=0.0))
    rate_limits = RateLimits()
    rate_limits.on_rejected(MODEL, _go(rate_limits), 4.0)
    with engine_of(registry_of(once), rate_limits) as worker:
        run = worker.begin("echo", {"name": "patience"})
    assert run.output == '"patience"'
    (wait,) = [event for event in events(run.id) if event["type"] == "RetryScheduled"]
    assert (wait["cause"], wait["ticket"], wait["attempt"]) == ("brake", 1, 1)
    assert len(provider.bodies) == 1


def _pass_ten_seconds() -> None:
    _pass(timedelta(seconds=10))


def _pass(past: timedelta) -> None:
    RateLimit.objects.update(since=F("since") - past, hit_at=F("hit_at") - past)


def _gap() -> float:
    return RateLimit.objects.get().gap


@pytest.fixture
def braked(transactional_db: None) -> RateLimits:
    """A provider has just said that it wants no request for 10 s."""
    rate_limits = RateLimits()
    rate_limits.on_rejected(MODEL, _go(rate_limits), 10.0)
    return rate_limits


def _wait(rate_limits: RateLimits, ticket: int = 0) -> RateLimited:
    said = rate_limits.acquire(MODEL, ticket)
    assert isinstance(said, RateLimited)
    return said


def _go(rate_limits: RateLimits, ticket: int = 0) -> Permit:
    said = rate_limits.acquire(MODEL, ticket)
    assert isinstance(said, Permit)
    return said


def test_calls_wait_for_the_named_time_then_go_one_by_one(braked: RateLimits) -> None:
    first, second = (_wait(braked) for _ in range(2))
    assert (first.queue_number, second.queue_number) == (1, 2)
    assert timedelta(seconds=4) < second.until - first.until < timedelta(seconds=8)
    _pass_ten_seconds()
    assert _go(braked, first.queue_number).is_limited
    assert _wait(braked, second.queue_number).queue_number == 2
    assert _wait(braked).queue_number == 3
    _pass_ten_seconds()
    _go(braked, second.queue_number)


def test_an_hour_that_a_provider_asks_for_is_waited_and_then_one_call_goes_each_minute(
    transactional_db: None, settings: Any
) -> None:
    settings.OPENAI_API_KEY = "key"
    rate_limits = RateLimits()
    begun = _go(rate_limits)
    rate_limits.on_rejected(MODEL, begun, 3600.0)
    with_fallback = replace(ECHO, model=None, models=(MODEL, "anthropic:b"))
    effects = AgentEffects(registry_of(with_fallback), rate_limits=rate_limits)
    fault = Frame(effects, "echo", {"name": "x"}).fault()
    assert (fault.cause, fault.model, fault.fallback) == ("limit", MODEL, "anthropic:b")
    assert 60.0 < (fault.retry_after or 0.0) <= 3600.0
    waiting = _wait(rate_limits)
    assert waiting.until >= begun.at + timedelta(hours=1)
    assert waiting.queue_number == 1  # calls that did not wait took none
    assert _gap() == 60.0


def test_refusals_that_were_under_way_together_are_one(braked: RateLimits) -> None:
    ticket = _wait(braked).queue_number
    _pass_ten_seconds()
    early = _go(braked, ticket)
    RateLimit.objects.update(since=F("since") + timedelta(hours=1))  # no time eases it meanwhile
    for _ in range(5):
        braked.on_rejected(MODEL, early, 10.0)
    assert _gap() == 20.0
    braked.on_success(MODEL, early)  # of an older call
    assert _gap() == 20.0


def test_a_refusal_with_a_shorter_time_shortens_no_interval(braked: RateLimits) -> None:
    _pass_ten_seconds()
    permit = _go(braked)
    RateLimit.objects.update(since=F("since") + timedelta(hours=1))  # no time eases it meanwhile
    braked.on_rejected(MODEL, permit, 1.0)
    assert _gap() == 10.0


def test_each_minute_without_a_refusal_halves_the_interval(braked: RateLimits) -> None:
    _pass(timedelta(seconds=10 + 60))
    braked.on_success(MODEL, _go(braked))
    assert _gap() <= 10 / 2 * INTERVAL_FACTOR
    _pass(timedelta(minutes=12))
    assert not _go(braked).is_limited
    braked.on_rejected(MODEL, _go(braked), 3.0)  # a new limit, not the double of the last
    assert _gap() == 3.0


def test_a_limit_of_one_model_holds_up_no_other(provider: Provider, braked: RateLimits) -> None:
    for model, is_asked in ((MODEL, False), ("openai:b", True)):
        effects = AgentEffects(
            registry_of(replace(ECHO, models=(model,), model=None)), rate_limits=braked
        )
        outcome = perform(effects, Frame(effects, "echo", {"name": "x"}).request())
        assert isinstance(outcome, ModelAnswer if is_asked else RateLimited)


def test_answers_let_more_through_until_the_brake_is_off(braked: RateLimits) -> None:
    gaps = [_gap()]
    while gaps[-1]:
        said = braked.acquire(MODEL, 0)
        if isinstance(said, RateLimited):
            _pass_ten_seconds()
            said = braked.acquire(MODEL, said.queue_number)
        assert isinstance(said, Permit)
        braked.on_success(MODEL, said)
        gaps.append(_gap())
    assert gaps == sorted(gaps, reverse=True)
    assert len(gaps) > 20
    assert not _go(braked).is_limited
