"""API operations on replays of runs with today's code; for admins."""

from typing import Any
from uuid import UUID

from ninja import Router, Schema, Status

from runtime.control import jobs
from runtime.ports import wiring
from runtime.store.tables.jobs import JobRow, ReplayRow
from runtime.web.requests import Authenticated
from runtime.web.schemas import fields_of

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


@fields_of(JobRow, "id by at state ended_at problem")
class JobOut(Schema):
    """A job of a worker. `state` is `queued`, `running`, `done` or `failed`; `problem` says why it ended early."""


@fields_of(ReplayRow, "run host process compared entries")
class ReplayOut(JobOut):
    """A replay. `state` is `queued`, `running`, `done` or `failed`; `problem` says why it ended early.

    The worker is a `process` on `host`. It has compared `compared` of `entries`; `found` is null before its end.
    """

    found: ComparedOut | None

    @staticmethod
    def resolve_found(row: ReplayRow) -> dict[str, Any] | None:
        """Return the comparison with a list of versions."""
        versions = [
            {"agent": agent, "recorded": recorded, "today": today}
            for agent, (recorded, today) in row.comparison.get("versions", {}).items()
        ]
        return {**row.comparison, "versions": versions} if row.comparison else None


@router.post("/runs/{uuid:run}/replays", response={202: ReplayOut})
def replay_run(request: Authenticated, run: UUID) -> Status[ReplayRow]:
    """Have a worker replay a recorded run with its code. Nothing is executed. For admins."""
    wiring.access().require(request.auth, "runs:read")
    return Status(202, jobs.replay_run(run=run, actor=request.auth))


@router.get("/runs/{uuid:run}/replays/{uuid:replay}", response=ReplayOut)
def read_replay(request: Authenticated, run: UUID, replay: UUID) -> ReplayRow:
    """Read a replay: how far it is, and where the run would go another way. For admins."""
    wiring.access().require(request.auth, "runs:read")
    return jobs.find_replay(run=run, replay=replay, actor=request.auth)
