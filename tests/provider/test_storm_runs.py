"""Many runs through a provider of which four requests in five fail: all finish, nothing is repeated, within budget.

A request is refused (429), broken off (500), cut, or ends in the middle as if it were complete. FAULTS_R9 says how
many runs there are.
"""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction
from pydantic_ai.messages import ModelResponse

from agents.llm.rate_limits import RateLimits
from agents.sdk import RetryPolicy, ToolContext, tool
from agents.sdk.scripts import Turn, call, say, script
from runtime.control import verification
from runtime.control.start import create
from runtime.core.budgets import Budget
from runtime.execution.claim import advance
from runtime.models import Gate, Run
from runtime.ports.access import Actor
from tests.support.engine import AT_REST, Engine, engine_of, events_of
from tests.support.people import until
from tests.support.provider.server import Provider, serving
from tests.support.provider.storms import Storm
from tests.support.specs import Question, registry_of, spec_of
from tests.system.fault_injection.harness.counts import count
from tests.system.fault_injection.harness.figures import say as tell

RUNS = count("R9", short=20, long=500)
WORKERS = 3
AT_ONCE = 24
SHARE = 0.8
CALLS = 2
BUDGET = Budget(turns=CALLS + 1, calls=CALLS)  # exactly enough for a run without faults

posted: Counter[str] = Counter()
_lock = threading.Lock()


@tool(effect="write")
def post(context: ToolContext, text: str, sheet: int) -> str:
    """Post one sheet of it."""
    with _lock:
        posted[context.key] += 1
    return f"{text} {sheet}"


@script
def _poster(turn: Turn) -> ModelResponse:
    done = len(turn.results)
    return call("post", text=turn.input["text"], sheet=done) if done < CALLS else say("Posted.")


PATIENT = RetryPolicy(attempts=1000, base=0.02, ceiling=0.2)
REGISTRY = registry_of(
    spec_of("poster", input=Question, model=_poster, tools=[post], retry=PATIENT)
)


@pytest.fixture
def provider(by_hand: None, settings: Any) -> Iterator[Provider]:
    with serving(REGISTRY, settings, weather=Storm(SHARE, seed=9)) as one:
        one.retry_after = 0.002
        yield one


def test_runs_in_a_storm_finish_within_budget_and_repeat_nothing(provider: Provider) -> None:
    posted.clear()
    began_at = time.monotonic()
    with ExitStack() as stack:
        workers = [stack.enter_context(engine_of(REGISTRY, RateLimits())) for _ in range(WORKERS)]
        with ThreadPoolExecutor(min(RUNS, AT_ONCE)) as pool:
            runs = list(pool.map(lambda n: _run(workers[n % WORKERS], n), range(RUNS)))
    trouble, asked = Counter(provider.happened), len(provider.bodies)
    used = Counter(event["type"] for run in runs for event in events_of(run))
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


def _run(worker: Engine, number: int) -> Run:
    try:
        with transaction.atomic():
            run: UUID = create(
                agent="poster",
                input={"text": str(number)},
                requester=Actor(person="ada"),
                budget=BUDGET,
            ).run

        def rested() -> Run | None:
            advance(run, worker.context)
            found = Run.objects.get(id=run)
            return found if found.status in AT_REST else None

        return until(rested, f"run {run} to rest", within=120 + 3 * RUNS)
    finally:
        connection.close()
