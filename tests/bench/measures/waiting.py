"""Runs that wait for slow models: how long one worker process takes with many of them, and what each costs it.

The application runs as `make up` runs it, with one worker, on servers of its own. Runs make five model calls of
2 s each; the reference is the same calls by the provider's own client, before and after. A decision is timed
from its request to the end of its run, on an idle worker and on one that is full of new runs that wait.
"""

import asyncio
import multiprocessing
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from tests.bench.figures import Finding, Line, number
from tests.bench.site import Site, cpu_of
from tests.support.people import until
from tests.support.provider.server import KEY
from tests.support.provider.slow import STEPS, SlowProvider
from tests.support.scripted_agents.crowd import Crowd, stack_of

CALLS = STEPS + 1
SECONDS = 2.0
DECISIONS = 20
FULL = 224  # new runs that one worker takes

NOW = "SELECT extract(epoch FROM clock_timestamp())::float"
LAST = "SELECT extract(epoch FROM max(ended_at))::float FROM runtime_run WHERE agent = 'walker'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """The totals of all runs: seconds, seconds of the worker's CPU, its memory in MB, its connections."""

    seconds: float
    cpu: float
    idle: float
    most: float
    connections: int


def measure(_: Site, *, quick: bool) -> Finding:
    runs = 50 if quick else 200
    with tempfile.TemporaryDirectory(prefix="signoff-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # the servers may run under another account
        with SlowProvider(SECONDS) as model:
            before = bare(model.url, runs)
            taken = waiting(folder / "waiting", model.url, runs)
            after = bare(model.url, runs)
        idle, full = decisions(folder / "decisions")
    alone, cpu = map(mean, zip(before, after, strict=True))
    return Finding(
        "Runs that wait for slow models",
        (
            Line(
                f"{runs} runs of {CALLS} calls of {SECONDS:g} s",
                [taken.seconds / max(CALLS * SECONDS, alone)],
                " ×",
                most=1.3,
                ours=f"{number(taken.seconds)} s, {number(taken.cpu)} s of CPU",
                reference=f"the provider's client: {number(alone)} s, {number(cpu)} s of CPU",
            ),
            Line(
                "memory of a waiting run",
                [1000 * (taken.most - taken.idle) / runs],
                " KB",
                ours=f"{number(taken.idle)} MB idle, {number(taken.most)} MB at most",
            ),
            Line("connections of the worker to Postgres", [taken.connections], most=10),
            Line("decision to end, idle worker", idle, " ms"),
            Line(f"decision to end, beside {FULL} new runs that wait", full, " ms"),
        ),
    )


# The provider's client alone


def bare(url: str, runs: int) -> tuple[float, float]:
    """Seconds, and seconds of CPU, of the same calls in a process of its own, without anything around them."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_walk_all, url, runs).result()


def _walk_all(url: str, runs: int) -> tuple[float, float]:
    from openai import AsyncOpenAI

    async def all_at_once() -> None:
        client = AsyncOpenAI(api_key=KEY, base_url=url, max_retries=0)
        await asyncio.gather(*(_walk(client) for _ in range(runs)))

    began_at, spent = time.monotonic(), time.process_time()
    asyncio.run(all_at_once())
    return time.monotonic() - began_at, time.process_time() - spent


async def _walk(client: Any) -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Take every step."}]
    function = {"name": "step", "parameters": {"type": "object", "properties": {}}}
    for turn in range(CALLS):
        stream = await client.chat.completions.create(
            model="loopback",
            messages=messages,
            tools=[{"type": "function", "function": function}],
            stream=True,
        )
        async for _ in stream:
            pass
        call = {"id": str(turn), "function": {"name": "step", "arguments": "{}"}}
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call | {"type": "function"}]},
            {"role": "tool", "tool_call_id": str(turn), "content": "took a step"},
        ]


# The whole application


def waiting(home: Path, url: str, runs: int) -> Taken:
    """All runs on one worker, from when it may take the first to the last end by Postgres' clock.

    They are started while the worker is stopped: starting them takes a processor too.
    """
    with stack_of(home, url) as stack:
        crowd = Crowd(stack)
        worker = crowd.worker
        spent, memory, connections = cpu_of(worker.pid), [worker.memory_info().rss], [0]

        def ended() -> bool | None:
            memory.append(worker.memory_info().rss)
            connections.append(crowd.connections())
            return crowd.statuses("walker") == {"completed": runs} or None

        worker.suspend()
        crowd.start("walker", runs)
        began_at = crowd.one(NOW)
        worker.resume()
        until(ended, "every run to end", 900.0)
        return Taken(
            seconds=crowd.one(LAST) - began_at,
            cpu=cpu_of(worker.pid) - spent,
            idle=memory[0] / 1e6,
            most=max(memory) / 1e6,
            connections=max(connections),
        )


def decisions(home: Path) -> tuple[list[float], list[float]]:
    """Milliseconds from the request that decides to the run's end, idle and beside runs that wait."""
    with SlowProvider(steps=1) as model, stack_of(home, model.url) as stack:
        crowd = Crowd(stack)
        asking = crowd.start("careful_walker", 2 * DECISIONS)
        wanted = {"suspended": len(asking)}
        until(lambda: crowd.statuses("careful_walker") == wanted or None, "every run to ask")
        idle = [_decide(crowd, run) for run in asking[:DECISIONS]]
        model.hold()
        crowd.start("walker", FULL + DECISIONS)
        assert model.wait_for(FULL, 300.0)
        full = [_decide(crowd, run) for run in asking[DECISIONS:]]
        assert crowd.statuses("walker") == {"running": FULL, "queued": DECISIONS}
        model.release()
        return idle, full


def _decide(crowd: Crowd, run: str) -> float:
    approval = crowd.office.approval(run)
    began_at = time.monotonic()
    code, said = crowd.office.decide("bea", approval, "approve")
    assert code == 200, said
    while crowd.status(run) != "completed":
        assert time.monotonic() - began_at < 60.0, f"run {run} did not end after its decision"
        time.sleep(0.002)
    return (time.monotonic() - began_at) * 1000
