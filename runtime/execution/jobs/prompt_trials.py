"""Tries a version of a prompt on recorded runs: the same messages, and what the model would reply to them.

Each recorded reply of an agent with the prompt is asked for again, from the state in which it was recorded. The reply
is stored next to the recorded one. No call of it is made, and the run does not change. The models are really
asked, so a trial costs as much as these replies. Where a provider wants fewer requests, a trial waits as a run does.
"""

import json
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any
from uuid import UUID, uuid4

from runtime.core.documents.blobs import InlinedMessages
from runtime.core.run.events import ModelReplied, PinnedPrompt
from runtime.core.run.planning import CallModel
from runtime.core.run.reducer import evolve, step
from runtime.core.values.enums import FailureCause
from runtime.core.values.errors import CoreError
from runtime.errors import InvalidInput, KeyMissing, ObjectStoreDown, Tampered, UnknownAgent
from runtime.execution.effects.perform import build_request, start_model_call
from runtime.execution.jobs import runner
from runtime.execution.jobs.runner import MAX_SECONDS
from runtime.keyring import sealing
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.ports.effects import (
    EffectHandler,
    ModelAnswer,
    ModelFailure,
    ModelRequest,
    Outcome,
    RateLimited,
)
from runtime.reads.redaction import redact
from runtime.store import pool
from runtime.store.pool import Connection
from runtime.store.tables import blobs, journal, kill_switches
from runtime.store.tables.jobs import MAX_RUNS, TRIALS, TrialRow
from runtime.store.tables.kill_switches import EVERY_AGENT

MAX_REPLIES = 20  # of one run
SEARCHED = 50  # of the last ended runs, among which those with the prompt are found
LATE = 1.0  # seconds, after which a model call that has its own deadline is given up
LOOK_SECONDS = 1.0  # between two looks whether the trial stops, while it waits for a model
MIN_WAIT_SECONDS = 0.1  # for a rate limit: the clocks of worker and database may differ
DRAINED = "The worker was stopped before the trial was done. Start another trial."
GONE = "One of its runs was erased or archived meanwhile. Start another trial."
STOPPED = "the trial was over before this reply, or an administrator stopped the agent"

_LAST = """
    SELECT id FROM runtime_run
    WHERE ended_at IS NOT NULL AND removed_at IS NULL AND archived_at IS NULL
    ORDER BY ended_at DESC LIMIT %(searched)s
"""
_UNREADABLE = (Tampered, KeyMissing, CoreError, ObjectStoreDown)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepliedWords:
    """The reply of a model: a text, calls, or a typed result."""

    text: str
    calls: tuple[dict[str, Any], ...]
    output: Any
    cost: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A recorded reply of an agent with the prompt, and the request for it."""

    position: int
    path: tuple[str, ...]
    reply: ModelReplied
    request: ModelRequest
    pinned: PinnedPrompt


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedReply:
    """A recorded reply and that of the trial; `error` says why there is none."""

    position: int
    path: tuple[str, ...]
    version: int
    recorded: RepliedWords
    tried: RepliedWords | None = None
    error: str = ""

    @property
    def differs(self) -> bool:
        """Whether the model says something else than the recorded reply, apart from the cost."""
        return self.tried is not None and _open_reply_words(self.tried) != _open_reply_words(
            self.recorded
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedRun:
    """One run and its tried replies; `error` says why the run could not be read."""

    run: UUID
    replies: tuple[TriedReply, ...] = ()
    error: str = ""

    @property
    def document(self) -> dict[str, Any]:
        """The fields as JSON, without secrets."""
        replies = [redact({**asdict(reply), "differs": reply.differs}) for reply in self.replies]
        return {"run": str(self.run), "replies": replies, "error": self.error}


def perform(trial: UUID, *, handler: EffectHandler, drains: Callable[[], bool]) -> None:
    """Perform a queued trial once, as `runner.perform` does."""
    runner.perform(TRIALS, trial, handler, lambda row: _try_queued(row, handler, drains))


def try_each(
    name: str, number: int, runs: int, *, handler: EffectHandler, stops: Callable[[], bool]
) -> Iterator[TriedRun]:
    """Try a version on so many runs, until `stops` or an administrator stops one of its agents.

    Yield each run when it was tried. No transaction is open while a model is asked.
    """
    count = 0
    with pool.join_transaction() as connection:
        candidates = connection.execute(_LAST, {"searched": SEARCHED}).fetchall()
    for (run,) in candidates:
        if count == runs:
            break
        try:
            with pool.join_transaction() as connection:
                recorded_replies = list_prompt_replies(connection, run, name)
        except _UNREADABLE as exc:
            count += 1
            yield TriedRun(run=run, error=str(exc))
            continue
        if recorded_replies:
            agents = {EVERY_AGENT, *(agent for reply in recorded_replies for agent in reply.path)}
            stops_here = partial(_must_stop, stops, agents)
            replies = try_replies(recorded_replies, number, handler=handler, stops=stops_here)
            count += 1
            yield TriedRun(run=run, replies=tuple(replies))


def list_prompt_replies(connection: Connection, run: UUID, name: str) -> list[Asked]:
    """List the first replies of a run's agents that use the prompt.

    Raise Tampered, KeyMissing, NewerSchema or ObjectStoreDown.
    """
    filled = InlinedMessages(
        lambda digest: blobs.fetch(connection, digest),
        lambda memory: blobs.read_remembered_texts(
            connection, [remembered.digest for remembered in memory]
        ),
    )
    replies: list[Asked] = []
    history = journal.read_history(connection, run)
    now = history.start
    for sealed, entry in history.entries:
        before = now
        for event in entry.events:
            if (
                isinstance(event, ModelReplied)
                and not event.given_by
                and (pinned := before.frame(event.frame).pinned) is not None
                and pinned.name == name
            ):
                request = build_request(before, CallModel(frame=event.frame), filled, {})
                assert isinstance(request, ModelRequest)
                replies.append(
                    Asked(
                        position=sealed.position,
                        path=before.path(event.frame),
                        reply=event,
                        request=replace(request, model="", queue_number=0),
                        pinned=pinned,
                    )
                )
                if len(replies) == MAX_REPLIES:
                    return replies
            before = evolve(before, event)
        now = step(now, entry.events, head=sealed.seal.mac, at=entry.at)
    return replies


def try_replies(
    replies: Sequence[Asked], number: int, *, handler: EffectHandler, stops: Callable[[], bool]
) -> Iterator[TriedReply]:
    """Ask for each reply with this version of the prompt, until `stops`."""
    unknown = uuid4()  # not the run, whose conversations the process may have cached
    for reply in replies:
        tried = TriedReply(
            position=reply.position,
            path=reply.path,
            version=reply.pinned.number,
            recorded=extract_reply(reply.reply),
        )
        if stops():
            yield replace(tried, error=STOPPED)
            continue
        try:
            outcome = _ask(
                replace(reply.request, run=unknown), reply.pinned, number, handler, stops
            )
        except (InvalidInput, UnknownAgent) as exc:
            yield replace(tried, error=str(exc))
            continue
        if isinstance(outcome, ModelAnswer):
            yield replace(tried, tried=extract_reply(outcome))
        else:
            error = str(getattr(outcome, "error", "the model did not reply"))
            if isinstance(outcome, RateLimited):
                error = f"the provider limits requests until {outcome.until:%H:%M:%S} UTC"
            yield replace(tried, error=error)


def extract_reply(reply: ModelReplied | ModelAnswer) -> RepliedWords:
    """Return what a reply says, with its secrets sealed."""
    calls = tuple({"tool": call.tool, "args": call.args} for call in reply.calls)
    return RepliedWords(text=reply.text, calls=calls, output=reply.output, cost=reply.cost)


def _ask(
    request: ModelRequest,
    pinned: PinnedPrompt,
    number: int,
    handler: EffectHandler,
    stops: Callable[[], bool],
) -> Outcome:
    agent_input = request.messages[0]["content"]
    instructions = handler.instruct(request.agent, agent_input, at=pinned.at, number=number)
    if instructions.pinned is None or instructions.pinned.name != pinned.name:
        raise InvalidInput("agent", f"{request.agent} does not use the prompt {pinned.name} today")
    request = replace(request, instructions=instructions.text)
    while True:
        outcome = _call_model(request, handler, stops)
        match outcome:
            case RateLimited():
                with pool.pooled() as connection:
                    seconds = (outcome.until - pool.read_clock(connection)).total_seconds()
                request = replace(request, queue_number=outcome.queue_number)
            case ModelFailure(cause=FailureCause.LIMIT):
                seconds = outcome.retry_after or 0.0
                request = replace(request, queue_number=0)
            case _:
                return outcome
        if not _wait(seconds, stops):
            return outcome


def _wait(seconds: float, stops: Callable[[], bool]) -> bool:
    """Wait for a rate limit. Return False if the trial is stopped meanwhile."""
    until, never = time.monotonic() + max(seconds, MIN_WAIT_SECONDS), threading.Event()
    while (seconds_left := until - time.monotonic()) > 0:
        if stops():
            return False
        never.wait(min(seconds_left, LOOK_SECONDS))
    return True


def _call_model(
    request: ModelRequest, handler: EffectHandler, stops: Callable[[], bool]
) -> Outcome:
    outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
    end = start_model_call(handler, request, outcomes.put)
    until = time.monotonic() + request.deadline + LATE
    while True:
        try:
            return outcomes.get(timeout=LOOK_SECONDS)
        except queue.Empty:
            is_late = time.monotonic() > until
            if is_late or stops():
                end()
                reason = "no reply within its deadline" if is_late else STOPPED
                return ModelFailure(error=reason, cause=FailureCause.TIME)


def _open_reply_words(reply: RepliedWords) -> Any:
    """Return the words of a reply with its secrets, to be compared alone: two seals of one value differ."""
    calls = [
        (call["tool"], sealing.open_secret_args(call["tool"], call["args"])) for call in reply.calls
    ]
    return [sealing.text_for_reviewers(reply.text), calls, reply.output]


def _try_queued(row: TrialRow, handler: EffectHandler, drains: Callable[[], bool]) -> str:
    """Try the runs, and return why the trial ended early, or an empty text.

    Raise Forbidden if the person who asked for it has lost the right since.
    """
    wiring.resolve_access().require(Actor(person=row.by), "admin")
    until = time.monotonic() + MAX_SECONDS
    runs: list[UUID] = []
    documents = []
    for tried_run in try_each(
        row.prompt,
        row.number,
        min(row.wanted, MAX_RUNS),  # the row is not signed
        handler=handler,
        stops=lambda: drains() or time.monotonic() > until,
    ):
        runs.append(tried_run.run)
        documents.append(tried_run.document)
        with pool.pooled() as connection:
            result = json.dumps(documents)
            if not TRIALS.save(connection, row.id, of=runs, runs=runs, result=result):
                return GONE
        if drains():
            return DRAINED
    return ""


def _must_stop(stops: Callable[[], bool], agents: set[str]) -> bool:
    if stops():
        return True
    with pool.join_transaction() as connection:
        return not agents.isdisjoint(kill_switches.list_stopped_agents(connection))
