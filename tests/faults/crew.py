"""Ada and Bea at work on the whole application over HTTP while parts of it die, and what must be true in the end."""

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.e2e.office import until
from tests.faults import ledger
from tests.faults.scores import Score, planned
from tests.stack import Stack

ENDS = ("completed", "failed", "cancelled", "quarantined")


class Crew:
    """Ada and Bea over HTTP, who go on when nobody answers."""

    def __init__(self, stack: Stack, book: Path) -> None:
        self._stack = stack
        self._book = book
        self.runs: dict[str, Score] = {}
        self.decided: list[str] = []  # approvals whose decision was acknowledged
        self.resumed: list[
            float
        ] = []  # seconds from a decision that was acknowledged to its effect
        self._decided: dict[str, dict[str, float]] = {}
        self._ended: set[str] = set()

    def start(self, score: Score, key: str) -> None:
        """Ask until somebody answers; the business key makes one run of it."""

        def asked() -> str | None:
            body = {"agent": "outer", "input": {"turns": score.turns}, "business_key": key}
            status, run = self._stack.ask("ada", "POST", "/api/v1/runs", body)
            return str(run["id"]) if status in (200, 201) else None

        self.runs[until(asked, "a run to be started")] = score

    def work(self) -> bool:
        """Decide whatever waits. Whether every run has ended."""
        self.review()
        self._ended |= {run for run in self.runs.keys() - self._ended if self._has_ended(run)}
        return len(self._ended) == len(self.runs)

    @property
    def ended(self) -> int:
        """How many runs were seen to have ended."""
        return len(self._ended)

    def review(self) -> None:
        """Decide whatever waits."""
        for kind in ("approval", "in_doubt"):
            path = f"/api/v1/approvals?status=pending&kind={kind}&limit=200"
            _, inbox = self._stack.ask("bea", "GET", path)
            for approval in (inbox or {}).get("items", []):
                if approval["run"] in self.runs:
                    self._decide(approval)

    def _has_ended(self, run: str) -> bool:
        return self.look(run)["status"] in ENDS

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
        status, _ = self._stack.ask("bea", "POST", path, body)
        if status == 200:
            self.decided += [approval["id"]] if approval["kind"] == "approval" else []
            self._decided.setdefault(approval["run"], {})[approval["gate"]] = time.monotonic()

    def look(self, run: str) -> dict[str, Any]:
        status, found = self._stack.ask("ada", "GET", f"/api/v1/runs/{run}")
        if status != 200:
            return {"status": "unknown"}
        waiting = {gate["id"] for gate in found["gates"]}
        for gate, at in list(self._decided.get(run, {}).items()):
            if gate not in waiting:
                self.resumed.append(time.monotonic() - at)
                del self._decided[run][gate]
        return dict(found)

    def doubted(self) -> int:
        """How many calls were ever in doubt."""
        return sum(
            event["type"] == "GateOpened" and event["kind"] == "in_doubt"
            for run in self.runs
            for event in self.events(run)
        )

    def problems(self, run: str, score: Score) -> list[str]:
        """Against the ledger; what a transactional tool did is counted by its results in the journal."""
        found = self._read("ada", f"/api/v1/runs/{run}")
        wrong = [] if found["status"] == score.ends else [f"{run} is {found['status']}"]
        looked = self._read("admin", f"/api/v1/runs/{run}/verification")
        wrong += [f"{run}: {finding}" for finding in looked["findings"]]
        tools = self._tools(run)
        happened = Counter(
            effect.key for effect in ledger.read(self._book) if effect.key.startswith(f"{run}/")
        )
        for key, times in happened.items():
            if times > 1 and tools[key] in ("send", "labour", "pay"):
                wrong.append(f"repeated: {tools[key]} {key} happened {times} times")
        for tool in ("look", "put", "send", "labour", "insist", "pay"):
            done = sum(tools[key] == tool for key in happened)
            if done != planned(score.turns, tool):
                wrong.append(
                    f"lost: {done} of {planned(score.turns, tool)} {tool} of {run} happened"
                )
        return wrong

    def _tools(self, run: str) -> dict[str, str]:
        tools: dict[str, str] = {}
        turns: Counter[str] = Counter()
        for event in self.events(run):
            if event["type"] == "ModelReplied":
                frame = event["frame"]
                turns[frame] += 1
                for index, proposal in enumerate(event["calls"]):
                    tools[f"{run}/{frame}/c{turns[frame]}.{index}"] = proposal["tool"]
        return tools

    def events(self, run: str) -> list[dict[str, Any]]:
        page = self._read("ada", f"/api/v1/runs/{run}/journal?limit=200")
        assert page["next"] is None, json.dumps(page["next"])
        return [event for item in page["items"] for event in item["events"]]

    def _read(self, person: str, path: str) -> dict[str, Any]:
        """What is there, asked until somebody answers: what died last may not be back yet."""

        def answered() -> dict[str, Any] | None:
            status, found = self._stack.ask(person, "GET", path)
            return found if status == 200 else None

        return until(answered, f"an answer to {path}")


def wait_for_every_end(crew: Crew, stack: Stack, within: float = 120) -> None:
    try:
        until(lambda: crew.work() or None, "every run to end", within=within)
    except AssertionError as late:
        left = [found for run in crew.runs if (found := crew.look(run))["status"] not in ENDS]
        lines = [*map(str, left), *stack.said[-60:]]
        for log in sorted((stack.home / "logs").glob("*.log")):
            lines += [log.name, *log.read_text(errors="replace").splitlines()[-40:]]
        late.add_note("\n".join(lines))
        raise
