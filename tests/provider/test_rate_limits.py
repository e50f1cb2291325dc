"""A storm of refusals: all workers together hold back, and everybody gets an answer in the end."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from agents.llm.rate_limits import Permit, RateLimits, Wait
from agents.sdk import RetryPolicy
from agents.sdk.scripts import say, script
from runtime.models import Run
from tests.support.engine import Engine, engine_of, events_of
from tests.support.provider.server import Provider, serving
from tests.support.provider.storms import Closed
from tests.support.specs import registry_of, spec_of

RUNS = 24
WORKERS = 3
STUBBORN = RetryPolicy(attempts=10_000, base=1.0, ceiling=60.0)
ECHO = spec_of("echo", model=script(lambda turn: say(turn.input["name"])), retry=STUBBORN)
REGISTRY = registry_of(ECHO)


@pytest.fixture
def provider(by_hand: None, settings: Any) -> Iterator[Provider]:
    with serving(REGISTRY, settings) as one:
        yield one


def _weather_out(provider: Provider, rate_limits: RateLimits | None) -> int:
    """Count the requests until every run has its answer; the storm is the same each time."""
    provider.bodies.clear()
    provider.weather = Closed(seconds=0.5, share=0.8, draws=8, seed=11)
    provider.retry_after = 0.5
    with ExitStack() as stack:
        workers = [stack.enter_context(engine_of(REGISTRY, rate_limits)) for _ in range(WORKERS)]
        with ThreadPoolExecutor(RUNS) as pool:
            runs = list(pool.map(lambda n: _run(workers[n % WORKERS], n), range(RUNS)))
    assert [run.output for run in runs] == [f'"{n}"' for n in range(RUNS)]
    return len(provider.bodies)


def _run(worker: Engine, number: int) -> Run:
    try:
        return worker.begin("echo", {"name": str(number)})
    finally:
        connection.close()


def test_a_refusing_provider_is_not_hammered_by_all_workers(provider: Provider) -> None:
    naive = _weather_out(provider, None)
    held_back = _weather_out(provider, RateLimits())
    assert held_back <= naive / 2
    waits = [event for run in Run.objects.all() for event in events_of(run) if event.get("ticket")]
    assert {event["cause"] for event in waits} == {"brake"}


def test_a_delay_by_the_rate_limit_uses_no_attempt(provider: Provider) -> None:
    once = replace(ECHO, retry=RetryPolicy(attempts=1, base=0.0, ceiling=0.0))
    rate_limits = RateLimits()
    rate_limits.on_rejected("openai", _go(rate_limits), 4.0)
    with engine_of(registry_of(once), rate_limits) as worker:
        run = worker.begin("echo", {"name": "patience"})
    assert run.output == '"patience"'
    (wait,) = [event for event in events_of(run) if event["type"] == "RetryScheduled"]
    assert (wait["cause"], wait["ticket"], wait["attempt"]) == ("brake", 1, 1)
    assert len(provider.bodies) == 1


# The brake by itself


def _pass(seconds: float) -> None:
    """Let so many seconds pass for every rate limit."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE agents_brake SET since = since - %(s)s * interval '1 second', "
            "hit_at = hit_at - %(s)s * interval '1 second'",
            {"s": seconds},
        )


def _gap() -> float:
    with connection.cursor() as cursor:
        cursor.execute("SELECT gap FROM agents_brake")
        return float(cursor.fetchone()[0])


@pytest.fixture
def braked(transactional_db: None) -> RateLimits:
    """A provider has just said that it wants no request for 10 s."""
    rate_limits = RateLimits()
    rate_limits.on_rejected("openai", _go(rate_limits), 10.0)
    return rate_limits


def _wait(rate_limits: RateLimits, ticket: int = 0) -> Wait:
    said = rate_limits.acquire("openai", ticket)
    assert isinstance(said, Wait)
    return said


def _go(rate_limits: RateLimits, ticket: int = 0) -> Permit:
    said = rate_limits.acquire("openai", ticket)
    assert isinstance(said, Permit)
    return said


def test_calls_wait_for_the_named_time_then_go_one_by_one(braked: RateLimits) -> None:
    first, second = (_wait(braked) for _ in range(2))
    assert (first.queue_number, second.queue_number) == (1, 2)
    assert timedelta(seconds=4) < second.until - first.until < timedelta(seconds=8)
    _pass(10.0)
    assert _go(braked, first.queue_number).is_limited
    assert _wait(braked, second.queue_number).queue_number == 2
    assert _wait(braked).queue_number == 3
    _pass(10.0)
    _go(braked, second.queue_number)
    assert isinstance(braked.acquire("anthropic", 0), Permit)  # other providers are not limited


def test_refusals_that_were_under_way_together_are_one(braked: RateLimits) -> None:
    ticket = _wait(braked).queue_number
    _pass(10.0)
    early = _go(braked, ticket)
    for _ in range(5):
        braked.on_rejected("openai", early, 10.0)
    assert _gap() == 20.0
    braked.on_success("openai", early)  # of an older call
    assert _gap() == 20.0


def test_answers_let_more_through_until_the_brake_is_off(braked: RateLimits) -> None:
    ticket = 0
    gaps: list[float] = []
    while not gaps or gaps[-1]:
        said = braked.acquire("openai", ticket)
        if isinstance(said, Wait):
            ticket = said.queue_number
            _pass(10.0)
            continue
        assert isinstance(said, Permit)
        braked.on_success("openai", said)
        ticket = 0
        gaps.append(_gap())
    assert gaps == sorted(gaps, reverse=True)
    assert len(gaps) > 20
    assert not _go(braked).is_limited
