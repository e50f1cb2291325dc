"""Runs that wait for slow models: how long one worker process takes with 200 of them, and what each costs it.

`python -m tests.bench.waiting` starts everything as `make up` does, with one worker, and prints figures as JSON:

- 200 runs of five model calls of 2 s, and the same 1,000 calls by the provider's own client, before and after;
- how long a decision takes to its run's end while the worker is idle, and while it is full of new runs that wait.
"""

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from config.env import ROOT
from tests.e2e.crowd import Crowd, stack_of
from tests.e2e.office import until
from tests.provider.server import KEY
from tests.provider.slow import STEPS, SlowProvider

RUNS = 200
CALLS = STEPS + 1
SECONDS = 2.0
DECISIONS = 20
FULL = 224  # new runs that one worker takes

TOOK = """
    SELECT extract(epoch FROM max(ended_at) - min(created_at))::float
    FROM runtime_run WHERE agent = 'walker'
"""


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="abeyance-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        with provider() as url:
            before = bare(url)
            figures = waiting(folder / "waiting", url)
            after = bare(url)
        figures["bare client"] = [before, after]
        longest = max(CALLS * SECONDS, (before["seconds"] + after["seconds"]) / 2)
        figures["ratio"] = round(figures["seconds"] / longest, 2)
        print(json.dumps(figures))  # noqa: T201
        print(json.dumps(decisions(folder / "decisions")))  # noqa: T201


@contextmanager
def provider() -> Iterator[str]:
    """The base URL of a slow provider in a process of its own."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.provider.slow", str(SECONDS)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.communicate("", timeout=30)


# The provider's client alone


def bare(url: str) -> dict[str, float]:
    """Seconds, and seconds of CPU, of the same calls in a process of its own, without anything around them."""
    command = [sys.executable, "-m", "tests.bench.waiting", "bare", url]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


async def _walk_all(url: str) -> dict[str, float]:
    from openai import AsyncOpenAI

    client = AsyncOpenAI(api_key=KEY, base_url=url, max_retries=0)
    began_at, spent = time.monotonic(), time.process_time()
    await asyncio.gather(*(_walk(client) for _ in range(RUNS)))
    return {
        "seconds": round(time.monotonic() - began_at, 2),
        "cpu": round(time.process_time() - spent, 2),
    }


async def _walk(client: Any) -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Take every step."}]
    function = {"name": "step", "parameters": {"type": "object", "properties": {}}}
    for number in range(CALLS):
        stream = await client.chat.completions.create(
            model="loopback",
            messages=messages,
            tools=[{"type": "function", "function": function}],
            stream=True,
        )
        async for _ in stream:
            pass
        call = {"id": str(number), "function": {"name": "step", "arguments": "{}"}}
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call | {"type": "function"}]},
            {"role": "tool", "tool_call_id": str(number), "content": "took a step"},
        ]


# The whole application


def waiting(home: Path, url: str) -> dict[str, Any]:
    """All runs on one worker, from the first start to the last end by Postgres' clock."""
    with stack_of(home, url) as stack:
        crowd = Crowd(stack)
        worker = crowd.worker
        spent, rss = _spent(worker), worker.memory_info().rss
        most, connections, threads = [rss], [0], [0]

        def ended() -> bool | None:
            most.append(worker.memory_info().rss)
            connections.append(crowd.connections())
            threads.append(worker.num_threads())
            return crowd.statuses("walker") == {"completed": RUNS} or None

        crowd.start("walker", RUNS)
        until(ended, "every run to end", 900.0)
        return {
            "runs": RUNS,
            "seconds": round(crowd.one(TOOK), 2),
            "cpu": round(_spent(worker) - spent, 2),
            "MB idle": round(rss / 1e6),
            "MB at most": round(max(most) / 1e6),
            "KB a run": round((max(most) - rss) / RUNS / 1e3),
            "threads": max(threads),
            "connections": max(connections),
        }


def decisions(home: Path) -> dict[str, Any]:
    """Milliseconds from the request that decides to the run's end."""
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
        model.let_go()
        return {"decision to end, idle": _spread(idle), "beside waiting runs": _spread(full)}


def _decide(crowd: Crowd, run: str) -> float:
    approval = crowd.office.approval(run)
    began_at = time.monotonic()
    code, said = crowd.office.decide("bea", approval, "approve")
    assert code == 200, said
    while crowd.status(run) != "completed":
        time.sleep(0.002)
    return (time.monotonic() - began_at) * 1000


def _spread(values: Sequence[float]) -> dict[str, int]:
    return {"p50": round(statistics.median(values)), "most": round(max(values))}


def _spent(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    if sys.argv[1:2] == ["bare"]:
        print(json.dumps(asyncio.run(_walk_all(sys.argv[2]))))  # noqa: T201
    else:
        main()
