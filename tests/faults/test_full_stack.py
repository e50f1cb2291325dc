"""kill -9 of a part of the whole application, or of all of it, at random moments while runs move.

FAULTS_R2 says how many, FAULTS_SEED which ones.
"""

import json
import os
import random
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from config.local.client import Unreachable
from tests.e2e.office import until
from tests.faults import figures, ledger
from tests.faults.counts import count
from tests.faults.scores import Score, crowd, effects, planned, transactions
from tests.stack import Stack

pytestmark = [pytest.mark.faults, pytest.mark.e2e]

KILLS = count("R2", short=20, long=1000)
SEED = int(os.environ.get("FAULTS_SEED", "1"))
LONGEST = 1.5  # seconds between two deaths
ENDS = ("completed", "failed", "cancelled", "quarantined")

# How to know the processes of one kind by their command line.
KINDS = {
    "worker": "celery",
    "web": "config.web",
    "sweeper": "sweep",
    "Postgres": "postgres",
    "broker": "valkey",
}


def test_random_deaths_of_parts_and_of_everything_lose_nothing_and_repeat_nothing(
    sandbox: Path,
) -> None:
    chance = random.Random(SEED)
    folder = sandbox / "effects"
    folder.mkdir()
    folder.chmod(0o777)  # the application may run under another account
    book = folder / "ledger"
    began_at = time.monotonic()
    extra = {
        "ABEYANCE_LEASE_SECONDS": "2",
        "ABEYANCE_POISON_LOSSES": "100",  # these deaths are ours, and no run's
        "ABEYANCE_AGENTS": "agents.flows.hr,tests.faults.flows",
        ledger.PATH: str(book),
    }
    killed: Counter[str] = Counter()
    with Stack(sandbox / "faults", port=None, **extra) as stack:
        crew = Crew(stack, book)
        for number in range(KILLS):
            for twin in range(2):
                score = chance.choice((crowd, effects, transactions))()
                crew.start(score, f"fault-{number}-{twin}")
            _work(crew, chance.uniform(0, LONGEST))
            what = chance.choice((*KINDS, "everything"))
            killed[what] += 1
            _kill(stack, what)
        _wait_for_every_end(crew, stack)
        wrong = [
            problem for run, score in crew.runs.items() for problem in crew.problems(run, score)
        ]
        doubts = sum(crew.doubts(run) for run in crew.runs)
    figures.say(f"killed: {dict(killed)}")
    figures.summary(
        f"random kills of the whole application, seed {SEED}",
        runs=len(crew.runs),
        kills=KILLS,
        wrong=wrong,
        doubts=doubts,
        seconds=time.monotonic() - began_at,
    )
    assert wrong == []


class Crew:
    """Ada and Bea over HTTP, who go on when nobody answers."""

    def __init__(self, stack: Stack, book: Path) -> None:
        self._stack = stack
        self._book = book
        self.runs: dict[str, Score] = {}

    def start(self, score: Score, key: str) -> None:
        """Ask until somebody answers; the business key makes one run of it."""

        def asked() -> str | None:
            body = {"agent": "outer", "input": {"turns": score.turns}, "business_key": key}
            status, run = self._stack.ask("ada", "POST", "/api/v1/runs", body)
            return str(run["id"]) if status in (200, 201) else None

        self.runs[until(asked, "a run to be started")] = score

    def work(self) -> bool:
        """Decide whatever waits. Whether every run has ended."""
        for kind in ("approval", "in_doubt"):
            path = f"/api/v1/approvals?status=pending&kind={kind}&limit=200"
            _, inbox = self._stack.ask("bea", "GET", path)
            for approval in (inbox or {}).get("items", []):
                if approval["run"] in self.runs:
                    self._decide(approval)
        return all(self.look(run)["status"] in ENDS for run in self.runs)

    def _decide(self, approval: dict[str, Any]) -> None:
        if approval["kind"] == "approval":
            body = {"verdict": "approve", "digest": approval["digest"], "reason": ""}
            path = f"/api/v1/approvals/{approval['id']}/decision"
        else:
            key = f"{approval['run']}/{approval['frame']}/{approval['call']}"
            happened = any(effect.key == key for effect in ledger.read(self._book))
            body = {"outcome": "happened" if happened else "run_again", "reason": ""}
            if happened:
                body["result"] = "as the ledger says"
            path = f"/api/v1/runs/{approval['run']}/gates/{approval['gate']}/settle"
        self._stack.ask("bea", "POST", path, body)

    def look(self, run: str) -> dict[str, Any]:
        status, found = self._stack.ask("ada", "GET", f"/api/v1/runs/{run}")
        return dict(found) if status == 200 else {"status": "unknown"}

    def doubts(self, run: str) -> int:
        return sum(gate["kind"] == "in_doubt" for gate in self.look(run)["gates"])

    def problems(self, run: str, score: Score) -> list[str]:
        """Against the ledger; what a transactional tool did is counted by its results in the journal."""
        found = self.look(run)
        wrong = [] if found["status"] == score.ends else [f"{run} is {found['status']}"]
        _, looked = self._stack.ask("admin", "GET", f"/api/v1/runs/{run}/verification")
        wrong += [f"{run}: {finding}" for finding in looked["findings"]]
        tools = self._tools(run)
        happened = Counter(
            effect.key for effect in ledger.read(self._book) if effect.key.startswith(f"{run}/")
        )
        for key, times in happened.items():
            if times > 1 and tools[key] in ("send", "pay"):
                wrong.append(f"repeated: {tools[key]} {key} happened {times} times")
        for tool in ("look", "put", "send", "insist", "pay"):
            done = sum(tools[key] == tool for key in happened)
            if done != planned(score.turns, tool):
                wrong.append(
                    f"lost: {done} of {planned(score.turns, tool)} {tool} of {run} happened"
                )
        return wrong

    def _tools(self, run: str) -> dict[str, str]:
        tools: dict[str, str] = {}
        turns: Counter[str] = Counter()
        for event in self._events(run):
            if event["type"] == "ModelReplied":
                frame = event["frame"]
                turns[frame] += 1
                for index, proposal in enumerate(event["calls"]):
                    tools[f"{run}/{frame}/c{turns[frame]}.{index}"] = proposal["tool"]
        return tools

    def _events(self, run: str) -> list[dict[str, Any]]:
        _, page = self._stack.ask("ada", "GET", f"/api/v1/runs/{run}/journal?limit=200")
        assert page["next"] is None, json.dumps(page["next"])
        return [event for item in page["items"] for event in item["events"]]


def _work(crew: Crew, seconds: float) -> None:
    until_when = time.monotonic() + seconds
    while time.monotonic() < until_when:
        with suppress(Unreachable):
            crew.work()
        time.sleep(0.05)


def _wait_for_every_end(crew: Crew, stack: Stack) -> None:
    try:
        until(lambda: crew.work() or None, "every run to end", within=120)
    except AssertionError as late:
        left = [found for run in crew.runs if (found := crew.look(run))["status"] not in ENDS]
        lines = [*map(str, left), *stack.said[-60:]]
        for log in sorted((stack.home / "logs").glob("*.log")):
            lines += [log.name, *log.read_text(errors="replace").splitlines()[-40:]]
        late.add_note("\n".join(lines))
        raise


def _kill(stack: Stack, what: str) -> None:
    if what == "everything":
        stack.kill_everything()
        stack.start()
        return
    for process in stack.processes():
        with suppress(psutil.Error):
            if any(KINDS[what] in part for part in process.cmdline()):
                process.kill()
