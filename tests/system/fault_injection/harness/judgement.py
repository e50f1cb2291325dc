"""Compares the runs of a whole application with their scores, the ledger of effects and their journals."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from tests.support import commands, ledger
from tests.support.records import Entry, Records
from tests.support.scripted_agents.scores import Score
from tests.support.stack import Stack
from tests.system.fault_injection.harness import office


class Judgement:
    """The findings about all `runs` after their end: errors in `wrong`, the time from each decision until its run
    continued, and the number of calls in doubt. `deaths` are the moments at which all processes died.
    """

    def __init__(
        self,
        stack: Stack,
        records: Records,
        runs: Mapping[str, Score],
        book: Path,
        deaths: Sequence[datetime] = (),
    ) -> None:
        self.wrong: list[str] = _unsound(stack)
        self.resumed: list[tuple[float, float]] = []  # since the decision, and since the last death
        self.in_doubt_gates = records.in_doubt_gates()
        statuses, decided = records.statuses(), records.decided()
        happened = ledger.by_run(book)
        self.wrong += [f"lost: {run} is not there" for run in runs.keys() - statuses.keys()]
        for run, journal in records.journals(runs):
            if statuses[run] != runs[run].ends:
                self.wrong.append(f"{run} is {statuses[run]}")
            events = [event for entry in journal for event in entry.events]
            self.wrong += office.outside(
                run, runs[run], events, happened.get(run, []), but=["book"]
            )
            self.resumed += _resumed(run, journal, decided, deaths)


def _unsound(stack: Stack) -> list[str]:
    """Return the findings of `verify_run --all` in the environment of the application."""
    done = commands.manage(
        "verify_run", "--all", "--json", env=stack.named("config.web")[0].environ()
    )
    looked = [json.loads(line) for line in done.stdout.splitlines()]
    found = [f"{one['run']}: {finding}" for one in looked for finding in one["findings"]]
    return found or ([done.stderr] if done.returncode else [])


def _resumed(
    run: str, journal: list[Entry], decided: Mapping[str, datetime], deaths: Sequence[datetime]
) -> Iterator[tuple[float, float]]:
    """Return the delays of each decision; all times are those of the database."""
    for entry in journal:
        for event in entry.events:
            if event["type"] == "GateDecided":
                since = decided[event["gate"]]
                last = max([since, *(death for death in deaths if death < entry.at)])
                yield (entry.at - since).total_seconds(), (entry.at - last).total_seconds()
