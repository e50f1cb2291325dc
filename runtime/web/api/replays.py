"""API operations on replays of runs with today's code; for admins."""

from datetime import datetime
from typing import Any
from uuid import UUID

from ninja import Router, Schema, Status

from runtime.control import replay as replays
from runtime.ports import wiring
from runtime.store.tables.jobs.replays import StoredReplay
from runtime.web.requests import Authenticated

router = Router(tags=["replays"])


class ReplyOut(Schema):
    """The reply of a script: a text, calls with `tool` and `args`, or a typed result."""

    text: str
    calls: list[dict[str, Any]]
    output: Any = None


class DivergenceOut(Schema):
    """A step that goes another way today. `position` is that of its entry; `path` ends with its agent or tool.

    `recorded` and `today` say it in words. A reply of a script has its fields too, if there is one today.
    """

    position: int
    path: list[str]
    recorded: str
    today: str
    recorded_reply: ReplyOut | None
    today_reply: ReplyOut | None


class AgentVersionsOut(Schema):
    """The version of an agent that the run used last, and that of the worker."""

    agent: str
    recorded: str
    today: str


class ComparedOut(Schema):
    """The steps that were compared, from entry `begins` to entry `until`: earlier ones were removed.

    `agents`, `replies` and `calls` were compared, but no instructions of the agents that had `begun` before: in the
    original of a fork, or in history that was removed. `kept` replies are those of the record, because their models are
    not asked again. `divergences` are the first 20; `more` says how many others there are. Without any, the run goes
    the same way.
    """

    begins: int
    until: int
    agents: int
    begun: int = 0
    replies: int
    kept: int
    calls: int
    versions: list[AgentVersionsOut]
    divergences: list[DivergenceOut]
    more: int


class ReplayOut(Schema):
    """A replay. `state` is `queued`, `running`, `done` or `failed`; `problem` says why it ended early.

    The worker is a `process` on `host`. It has compared `compared` of `entries`; `found` is null before its end.
    """

    id: UUID
    run: UUID
    by: str
    at: datetime
    state: str
    ended_at: datetime | None
    problem: str
    host: str
    process: int | None
    compared: int
    entries: int
    found: ComparedOut | None


@router.post("/runs/{uuid:run}/replays", response={202: ReplayOut})
def replay_run(request: Authenticated, run: UUID) -> Status[ReplayOut]:
    """Have a worker replay a recorded run with its code. Nothing is executed. For admins."""
    wiring.access().require(request.auth, "runs:read")
    return Status(202, _read(replays.ask(run=run, actor=request.auth)))


@router.get("/runs/{uuid:run}/replays/{uuid:replay}", response=ReplayOut)
def read_replay(request: Authenticated, run: UUID, replay: UUID) -> ReplayOut:
    """Read a replay: how far it is, and where the run would go another way. For admins."""
    wiring.access().require(request.auth, "runs:read")
    return _read(replays.find(run=run, replay=replay, actor=request.auth))


def _read(stored: StoredReplay) -> ReplayOut:
    result = stored.found
    versions = [
        AgentVersionsOut(agent=agent, recorded=before, today=after)
        for agent, (before, after) in result.get("versions", {}).items()
    ]
    return ReplayOut(
        id=stored.id,
        run=stored.run,
        by=stored.by,
        at=stored.at,
        state=stored.state,
        ended_at=stored.ended_at,
        problem=stored.problem,
        host=stored.host,
        process=stored.process,
        compared=stored.compared,
        entries=stored.entries,
        found=ComparedOut(**{**result, "versions": versions}) if result else None,
    )
