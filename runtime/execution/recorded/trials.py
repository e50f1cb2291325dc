"""Tries a version of a prompt on the last ended runs whose agents used the prompt."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from runtime.core.values.errors import CoreError
from runtime.errors import KeyMissing, ObjectStoreDown, Tampered
from runtime.execution.recorded.prompt_trial import TriedReply, asked_with, tried
from runtime.ports.effects import EffectHandler
from runtime.queries.redaction import redact
from runtime.store import pool
from runtime.store.tables import kill_switches
from runtime.store.tables.kill_switches import EVERY_AGENT

MAX_SECONDS = 120.0  # of one trial; its later replies are not asked for
SEARCHED = 50  # of the last ended runs, among which those with the prompt are found

_LAST = """
    SELECT id FROM runtime_run
    WHERE ended_at IS NOT NULL AND removed_at IS NULL AND archived_at IS NULL
    ORDER BY ended_at DESC LIMIT %(searched)s
"""
_UNREADABLE = (Tampered, KeyMissing, CoreError, ObjectStoreDown)


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedRun:
    """One run and its tried replies; `error` says why the run could not be read."""

    run: UUID
    replies: tuple[TriedReply, ...] = ()
    error: str = ""

    @property
    def document(self) -> dict[str, Any]:
        """The fields as JSON, without secrets."""
        replies = [redact(reply.document) for reply in self.replies]
        return {"run": str(self.run), "replies": replies, "error": self.error}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRuns:
    """The runs of one trial, the latest first."""

    runs: tuple[TriedRun, ...]

    @property
    def replies(self) -> tuple[TriedReply, ...]:
        """The replies of all its runs."""
        return tuple(reply for run in self.runs for reply in run.replies)


def try_version(
    name: str, number: int, runs: int, *, handler: EffectHandler, stops: Callable[[], bool]
) -> TrialRuns:
    """Try a version on so many runs, until `stops` or an administrator stops one of its agents."""
    return TrialRuns(runs=tuple(try_each(name, number, runs, handler=handler, stops=stops)))


def try_each(
    name: str, number: int, runs: int, *, handler: EffectHandler, stops: Callable[[], bool]
) -> Iterator[TriedRun]:
    """Yield each run when it was tried. No transaction is open while a model is asked."""
    count = 0
    for run in _last():
        if count == runs:
            break
        try:
            with pool.in_transaction() as connection:
                recorded_replies = asked_with(connection, run, name)
        except _UNREADABLE as exc:
            count += 1
            yield TriedRun(run=run, error=str(exc))
            continue
        if recorded_replies:
            agents = frozenset(
                {EVERY_AGENT, *(agent for reply in recorded_replies for agent in reply.path)}
            )
            replies = tried(
                recorded_replies, number, handler=handler, stops=_or_stopped(stops, agents)
            )
            count += 1
            yield TriedRun(run=run, replies=tuple(replies))


def _last() -> list[UUID]:
    with pool.in_transaction() as connection:
        return [run for (run,) in connection.execute(_LAST, {"searched": SEARCHED}).fetchall()]


def _or_stopped(stops: Callable[[], bool], agents: frozenset[str]) -> Callable[[], bool]:
    return lambda: stops() or not agents.isdisjoint(_stopped())


def _stopped() -> frozenset[str]:
    with pool.in_transaction() as connection:
        return kill_switches.stopped_agents(connection)
