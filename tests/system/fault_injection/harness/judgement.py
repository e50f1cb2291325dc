"""Compares the runs of a whole application with their scores, the ledger of effects and their journals."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tests.support import commands, ledger
from tests.support.records import Entry, Records
from tests.support.scripted_agents.scores import Score, planned
from tests.support.stack import Stack

ONCE = ("send", "labour", "pay")
TOOLS = ("look", "put", "insist", *ONCE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """The seconds that one decision waited, in all and since the last death of all processes."""

    run: str
    since_decision: float
    since_death: float


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
        self.wrong: list[str] = unsound(stack)
        self.resumed: list[Resumed] = []
        self.in_doubt_gates = records.in_doubt_gates()
        statuses, decided = records.statuses(), records.decided()
        happened = ledger.by_run(book)
        self.wrong += [f"lost: {run} is not there" for run in runs.keys() - statuses.keys()]
        for run, journal in records.journals(runs):
            if statuses[run] != runs[run].ends:
                self.wrong.append(f"{run} is {statuses[run]}")
            self.wrong += _problems(run, runs[run], journal, happened.get(run, []))
            self.resumed += _resumed(run, journal, decided, deaths)


def unsound(stack: Stack) -> list[str]:
    """Return the findings of `verify_run --all` in the environment of the application."""
    done = commands.manage(
        "verify_run", "--all", "--json", env=stack.named("config.web")[0].environ()
    )
    looked = [json.loads(line) for line in done.stdout.splitlines()]
    found = [f"{one['run']}: {finding}" for one in looked for finding in one["findings"]]
    return found or ([done.stderr] if done.returncode else [])


def _problems(
    run: str, score: Score, journal: list[Entry], effects: list[ledger.Effect]
) -> list[str]:
    tools = _tools(run, journal)
    happened = Counter(effect.key for effect in effects)
    wrong = [
        f"repeated: {tools[key]} {key} happened {times} times"
        for key, times in happened.items()
        if times > 1 and tools[key] in ONCE
    ]
    for tool in TOOLS:
        done, wanted = sum(tools[key] == tool for key in happened), planned(score.turns, tool)
        if done != wanted:
            wrong.append(f"lost: {done} of {wanted} {tool} of {run} happened")
    return wrong


def _tools(run: str, journal: list[Entry]) -> dict[str, str]:
    """The tool of every call that was proposed, by its key."""
    tools: dict[str, str] = {}
    turns: Counter[str] = Counter()
    for event in (event for entry in journal for event in entry.events):
        if event["type"] == "ModelReplied":
            frame = event["frame"]
            turns[frame] += 1
            for index, proposal in enumerate(event["calls"]):
                tools[f"{run}/{frame}/c{turns[frame]}.{index}"] = proposal["tool"]
    return tools


def _resumed(
    run: str, journal: list[Entry], decided: Mapping[str, datetime], deaths: Sequence[datetime]
) -> Iterator[Resumed]:
    """Return the delay of each decision; both times are those of the database."""
    for entry in journal:
        for event in entry.events:
            if event["type"] == "GateDecided":
                since = decided[event["gate"]]
                last = max([since, *(death for death in deaths if death < entry.at)])
                yield Resumed(
                    run=run,
                    since_decision=(entry.at - since).total_seconds(),
                    since_death=(entry.at - last).total_seconds(),
                )
