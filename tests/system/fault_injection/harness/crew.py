"""Ada and Bea at work on the whole application over HTTP while parts of it die."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from config.local.http_client import Unreachable
from tests.support import forks
from tests.support.people import until
from tests.support.scripted_agents import ledger
from tests.support.scripted_agents.scores import Score
from tests.support.stack import Stack, with_ledger
from tests.system.fault_injection.harness import figures, office
from tests.system.fault_injection.harness.records import journals, seconds_until

AGENTS = "agents.flows.hr,tests.support.scripted_agents.flows"


def stack_of(sandbox: Path, name: str, **more: str) -> tuple[Stack, Path]:
    """An application whose tools write to a ledger, and the ledger."""
    losses = {"SIGNOFF_POISON_LOSSES": "100"}  # these deaths are ours, and no run's
    return with_ledger(sandbox, name, AGENTS, **losses, **more)


class Crew:
    """Ada and Bea, who go on without an answer."""

    def __init__(self, stack: Stack, book: Path) -> None:
        self._stack = stack
        self._book = book
        self.runs: dict[str, Score] = {}
        self.decided: list[str] = []  # approvals whose decision was acknowledged
        self.deaths: list[datetime] = []  # of everything at once
        self._ended: set[str] = set()
        self._began_at = time.monotonic()
        self._answer = ""  # to the last request for a run

    def start(self, score: Score, key: str) -> None:
        """Ask until the web answers; the business key makes one run of it."""

        def asked() -> str | None:
            body = {"agent": "outer", "input": {"turns": score.turns}, "business_key": key}
            status, run = self._stack.ask("ada", "POST", "/api/v1/runs", body)
            self._answer = f"{status} {run}"
            return str(run["id"]) if status in (200, 201) else None

        with self._telling():
            self.runs[until(asked, "a run to be started")] = score

    def work(self, left: int = 0) -> bool:
        """Decide all open requests. Return whether at most so many runs are open then."""
        self.review()
        ended = "SELECT id FROM runtime_run WHERE id = ANY(%s::uuid[]) AND status = ANY(%s)"
        left_open = list(self.runs.keys() - self._ended)
        rows = self._stack.rows(ended, left_open, list(office.ENDS))
        self._ended |= {str(run) for (run,) in rows}
        return len(self.runs) - len(self._ended) <= left

    def review(self) -> None:
        for kind in ("approval", "in_doubt"):
            path = f"/api/v1/approvals?status=pending&kind={kind}&limit=200"
            _, inbox = self._stack.ask("bea", "GET", path)
            for approval in (inbox or {}).get("items", []):
                if approval["run"] in self.runs:
                    self._decide(approval)

    def judge(self, what: str, *, kills: int) -> tuple[list[str], int]:
        """Compare all runs after their end with their scores, the ledger of effects and their journals.

        Return what is wrong, and the number of calls that were in doubt.
        """
        web = self._stack.named("config.web")[0].environ()
        verified = forks.run("manage.py", "verify_run", "--all", "--json", env=web)
        looked = [json.loads(line) for line in verified.stdout.splitlines()]
        wrong = [f"{one['run']}: {finding}" for one in looked for finding in one["findings"]]
        if verified.returncode and not wrong:
            wrong.append(verified.stderr)
        since_decision, since_death = list[float](), list[float]()
        statuses, happened = self._statuses(), ledger.by_run(self._book)
        gates = self._stack.rows(
            "SELECT id::text, kind, decided_at FROM runtime_gate WHERE run_id = ANY(%s::uuid[])",
            list(self.runs),
        )
        decided = {gate: at for gate, _, at in gates}
        in_doubt = sum(kind == "in_doubt" for _, kind, _ in gates)
        wrong += [f"lost: {run} is not there" for run in self.runs.keys() - statuses.keys()]
        for run, told in journals(self._stack, self.runs):
            score = self.runs[run]
            if statuses[run] != score.ends:
                wrong.append(f"{run} is {statuses[run]}")
            events = [event for _, event in told]
            wrong += office.outside(run, score, events, happened.get(run, []), but=["book"])
            for at, event in told:
                if event["type"] == "GateDecided":
                    since = decided[event["gate"]]
                    last = max([since, *(death for death in self.deaths if death < at)])
                    since_decision.append((at - since).total_seconds())
                    since_death.append((at - last).total_seconds())
        figures.resumed("its decision", since_decision)
        if self.deaths:
            figures.resumed("its decision or the last death of everything after it", since_death)
        figures.progress(what, seconds_until(self._stack, self.runs))
        runs, began_at = len(self.runs), self._began_at
        figures.summary(what, wrong, began_at, runs=runs, kills=kills, in_doubt=in_doubt)
        return wrong, in_doubt

    def effects(self) -> int:
        """Return how many effects its runs had so far."""
        found = ledger.by_run(self._book)
        return sum(len(found.get(run, ())) for run in self.runs)

    def mark(self, token: str) -> None:
        ledger.mark(self._book, token)

    def work_until(self, left: int, within: float) -> None:
        with self._telling():
            until(lambda: self.work(left) or None, f"all runs but {left} to end", within=within)

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Add the evidence to an AssertionError of the block."""
        try:
            yield
        except AssertionError as late:
            late.add_note("\n".join(self._evidence()))
            raise

    def _evidence(self) -> Iterator[str]:
        """Return the open runs, and the last lines of each log."""
        yield f"{len(self.runs)} runs were started, the last request was answered: {self._answer}"
        with suppress(Unreachable):
            statuses = self._statuses()
            for run in self.runs.keys() - self._ended:
                yield f"{run} is {statuses.get(run)}"
        yield from self._stack.said[-60:]
        for log in sorted((self._stack.home / "logs").glob("*.log")):
            yield from (log.name, *log.read_text(errors="replace").splitlines()[-40:])

    def _statuses(self) -> dict[str, str]:
        return dict(self._stack.rows("SELECT id::text, status FROM runtime_run"))

    def _decide(self, approval: dict[str, Any]) -> None:
        if approval["kind"] == "approval":
            body = {"verdict": "approve", "digest": approval["digest"], "reason": ""}
            path = f"/api/v1/approvals/{approval['id']}/decision"
        else:
            key = f"{approval['run']}/{approval['frame']}/{approval['call']}"
            happened = ledger.happened(self._book, key)
            body = {"outcome": "happened" if happened else "run_again", "reason": ""}
            if happened:
                body["result"] = "as the ledger says"
            path = f"/api/v1/runs/{approval['run']}/gates/{approval['gate']}/settle"
        body["confirm"] = approval["confirm"]
        status, _ = self._stack.ask("bea", "POST", path, body)
        if status == 200 and approval["kind"] == "approval":
            self.decided.append(approval["id"])
