"""Trials of versions on recorded runs: an admin asks for one, a worker performs it, and its replies are read here."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import transaction

from approvals.errors import PromptRefused, UnknownPrompt
from approvals.governance import prompt_list, prompt_versions
from approvals.signed.audit import log_change
from runtime.control import jobs
from runtime.errors import InvalidInput
from runtime.ports.access import Actor
from runtime.store import pool
from runtime.store.tables.jobs import MAX_RUNS, TRIALS, TrialRow


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptTrialView:
    """A trial as it is shown. Each of its `runs` has `run`, `error` and `replies`."""

    stored: TrialRow
    runs: list[dict[str, Any]]

    @property
    def replies(self) -> int:
        """The number of recorded replies that a model was asked for again."""
        return sum(1 for _ in self._replies())

    @property
    def differ(self) -> int:
        """The number of tried replies that are not as the recorded ones."""
        return sum(reply["differs"] for reply in self._replies())

    @property
    def cost(self) -> float:
        """What the tried replies of known price cost, in US dollars."""
        return sum(cost for cost in self._costs() if cost is not None) / 1_000_000

    @property
    def unpriced(self) -> int:
        """The number of tried replies of unknown price."""
        return sum(cost is None for cost in self._costs())

    def _replies(self) -> Iterator[dict[str, Any]]:
        return (reply for run in self.runs for reply in run["replies"])

    def _costs(self) -> Iterator[int | None]:
        return (reply["tried"]["cost"] for reply in self._replies() if reply["tried"] is not None)


def ask(name: str, number: int, runs: object, *, actor: Actor) -> PromptTrialView:
    """Have a worker try a version on so many recorded runs.

    Raise InvalidInput naming `runs`, UnknownPrompt, or PromptRefused for a person without the right and while another
    trial of the prompt has not ended.
    """
    prompt_versions.require_right(actor)
    if isinstance(runs, bool) or not isinstance(runs, int) or not 1 <= runs <= MAX_RUNS:
        raise InvalidInput("runs", f"must be a number from 1 to {MAX_RUNS}")
    prompt = prompt_list.prompt(name)
    if prompt.broken:
        raise PromptRefused(f"The stored prompt does not verify: {prompt.broken}.")
    if not prompt.agents:
        raise PromptRefused(f"No agent uses the prompt {name}.")
    prompt.text(number)
    version = {"prompt": name, "number": number, "wanted": runs}
    with transaction.atomic():
        trial = jobs.enqueue(pool.djangos(), TRIALS, **version, by=actor.person, token=actor.token)
        if trial is None:
            raise PromptRefused(f"Another trial of the prompt {name} has not ended.")
        log_change(
            actor.person,
            f"asked for a trial of version {number} of the prompt {name} on {runs} runs",
        )
    return find(trial)


def find(trial: UUID) -> PromptTrialView:
    """Return a trial. Raise UnknownPrompt."""
    with pool.in_transaction() as connection:
        row = TRIALS.find(connection, trial)
    if row is None:
        raise UnknownPrompt
    return PromptTrialView(stored=row, runs=row.runs)


def listed(name: str, number: int) -> list[TrialRow]:
    """Return the trials of a version without their replies, the newest first."""
    with pool.in_transaction() as connection:
        return TRIALS.newest(connection, prompt=name, number=number)
