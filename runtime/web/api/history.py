"""API operations on what runs did: verification, past states, forks, export, archive, replays, messages and usage."""

from typing import Annotated, Any
from uuid import UUID

from django.http import HttpResponse
from ninja import Field, Query, Router, Schema, Status
from pydantic import WithJsonSchema

from runtime.control import interventions, jobs, transfer, verification
from runtime.control.forks import fork
from runtime.control.user_actions import require_readable_run, require_whole_run
from runtime.errors import NoSuchEntry
from runtime.ports import wiring
from runtime.reads import entries, run_figures
from runtime.reads.run_rows import RunDetail
from runtime.reads.transcript import AgentMessage, read_transcript
from runtime.store.tables.jobs import JobRow, ReplayRow
from runtime.web.api.runs import RunOut
from runtime.web.requests import (
    Authenticated,
    Body,
    Reason,
    mark_raw_body,
    read_period,
    with_example,
)
from runtime.web.schemas import with_fields_of

router = Router(tags=["history"])

_PARCEL = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"type": "object"}}},
    }
}


@with_fields_of(verification.Finding)
class FindingOut(Schema):
    """One inconsistency with the journal, and its place."""


@with_fields_of(verification.Verification, "run status position removed removed_at")
class VerificationOut(Schema):
    """The result of a verification; `sound` if there are no findings.

    `removed` entries of a long run were removed at `removed_at`, so they were not verified.
    """

    sound: bool
    findings: list[FindingOut]

    @staticmethod
    def resolve_sound(result: verification.Verification) -> bool:
        """Return the public field."""
        return result.is_consistent


@with_fields_of(entries.StateChange)
class MoveOut(Schema):
    """One change by an entry; `place` is empty for the run, else a frame or `frame/call`."""


@with_fields_of(entries.StateAt, "position at events unreadable")
class PastOut(Schema):
    """The state of a run after an entry; without a continuation if entry `unreadable` cannot be folded."""

    moves: list[MoveOut]
    continuation: Any = Field(validation_alias="document")


class ForkIn(Body):
    """The entry to fork from. Any value is accepted, so that a caller who may not read the run gets 404, not 422.

    `change` has the `value` that you give in the fork, and its place: `kind` is `message` with its `number` among the
    undelivered ones, `result` or `arguments` with `frame` and `call`, or `reply` with `frame`. The value of a reply is
    `{"text": str, "calls": [{"tool", "arguments"}, …]}`, and the next one of the model. Null copies the run as it was.
    """

    model_config = with_example(position=6)

    change: Annotated[
        Any,
        WithJsonSchema(
            {
                "type": ["object", "null"],
                "properties": {
                    "kind": {"enum": ["message", "result", "arguments", "reply"]},
                    "frame": {"type": "string"},
                    "call": {"type": "string"},
                    "number": {"type": "integer", "minimum": 1},
                    "value": {},
                },
                "required": ["kind", "value"],
            }
        ),
    ] = None

    position: Annotated[Any, WithJsonSchema({"type": "integer", "minimum": 1})] = None


class ReadmitIn(Body):
    """The reason. Any value is accepted, so that a caller who may not read the run gets 404, not 422."""

    reason: Reason = ""


@router.get("/runs/{uuid:run}/verification", response=VerificationOut)
def verify_run(request: Authenticated, run: UUID) -> verification.Verification:
    """Verify the stored data of the run; for admins."""
    require_whole_run(run, request.auth)
    return verification.verify(run)


@router.get("/runs/{uuid:run}/at/{int:position}", response=PastOut)
def read_run_at(request: Authenticated, run: UUID, position: int) -> entries.StateAt:
    """Read the state of the run after an entry, and the changes by it; for admins."""
    detail = require_whole_run(run, request.auth)
    past = entries.read_state_after(run, position) if position <= detail.position else None
    if past is None:
        raise NoSuchEntry
    return past


@router.post("/runs/{uuid:run}/fork", response={201: RunOut})
def fork_run(request: Authenticated, run: UUID, body: ForkIn) -> Status[RunDetail]:
    """Start a new run from a copy of this one after an entry.

    Recorded calls are not repeated. Open requests are sent to reviewers again, and calls that the original made after
    the entry may be made again. You may change one value in it, which is marked as yours.
    """
    wiring.resolve_access().require(request.auth, "runs:start")
    new = fork(run=run, position=body.position, actor=request.auth, change=body.change)
    return Status(201, require_readable_run(new, request.auth))


@router.post("/runs/{uuid:run}/readmit", response=RunOut)
def readmit_run(request: Authenticated, run: UUID, body: ReadmitIn) -> RunDetail:
    """Release a run from quarantine, if its stored data verifies; for admins."""
    wiring.resolve_access().require(request.auth, "runs:read")
    return interventions.release(run=run, reason=body.reason, actor=request.auth)


@router.post("/runs/{uuid:run}/export")
def export_run(request: Authenticated, run: UUID) -> HttpResponse:
    """End a run here, and return its signed file for another installation; for admins.

    An exported run returns its file again. `secrets` in the manifest names the keys that are needed to decrypt its
    secrets.
    """
    wiring.resolve_access().require(request.auth, "runs:read")
    text = transfer.export_run(run=run, actor=request.auth)
    name = {"Content-Disposition": f'attachment; filename="{run}.json"'}
    return HttpResponse(text, content_type="application/json", headers=name)


@router.post("/imports", response={201: RunOut}, openapi_extra=_PARCEL)
@mark_raw_body
def import_run(request: Authenticated) -> Status[RunDetail]:
    """Import a run: the body is its signed export file; for admins."""
    new = transfer.import_run(data=request.body, actor=request.auth)
    return Status(201, require_readable_run(new, request.auth))


class HoldIn(Body):
    """The reason. Any value is accepted, so that a caller who may not read the run gets 404, not 422."""

    reason: Reason = ""


@router.post("/runs/{uuid:run}/restore", response=RunOut, tags=["archive"])
def restore_run(request: Authenticated, run: UUID, body: HoldIn) -> RunDetail:
    """Restore an archived run, with a reason; for admins."""
    wiring.resolve_access().require(request.auth, "runs:read")
    return transfer.restore(run=run, reason=body.reason, actor=request.auth)


@router.post("/runs/{uuid:run}/hold", response=RunOut, tags=["archive"])
def hold_run(request: Authenticated, run: UUID, body: HoldIn) -> RunDetail:
    """Put a run under a legal hold, with a reason; for admins."""
    wiring.resolve_access().require(request.auth, "runs:read")
    return interventions.hold(run=run, reason=body.reason, actor=request.auth)


@router.post("/runs/{uuid:run}/lift-hold", response=RunOut, tags=["archive"])
def lift_hold(request: Authenticated, run: UUID, body: HoldIn) -> RunDetail:
    """Lift the legal hold of a run, with a reason; for admins."""
    wiring.resolve_access().require(request.auth, "runs:read")
    return interventions.lift_hold(run=run, reason=body.reason, actor=request.auth)


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


@with_fields_of(JobRow, "id by at state ended_at problem")
class JobOut(Schema):
    """A job of a worker. `state` is `queued`, `running`, `done` or `failed`; `problem` says why it ended early."""


@with_fields_of(ReplayRow, "run host process compared entries")
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


@router.post("/runs/{uuid:run}/replays", response={202: ReplayOut}, tags=["replays"])
def replay_run(request: Authenticated, run: UUID) -> Status[ReplayRow]:
    """Have a worker replay a recorded run with its code. Nothing is executed. For admins."""
    wiring.resolve_access().require(request.auth, "runs:read")
    return Status(202, jobs.replay_run(run=run, actor=request.auth))


@router.get("/runs/{uuid:run}/replays/{uuid:replay}", response=ReplayOut, tags=["replays"])
def read_replay(request: Authenticated, run: UUID, replay: UUID) -> ReplayRow:
    """Read a replay: how far it is, and where the run would go another way. For admins."""
    wiring.resolve_access().require(request.auth, "runs:read")
    return jobs.find_replay(run=run, replay=replay, actor=request.auth)


@with_fields_of(AgentMessage)
class AgentMessageOut(Schema):
    """A message of an agent to the requester. `text` is null while it waits for its release, which is `at`.

    `changed_by` is the person who replaced it in a fork, empty if none did.
    """


@router.get("/runs/{uuid:run}/agent-messages", response=list[AgentMessageOut], tags=["runs"])
def list_agent_messages(request: Authenticated, run: UUID) -> tuple[AgentMessage, ...]:
    """List the messages of agents to the requester. Those that wait for their release have no text."""
    wiring.resolve_access().require(request.auth, "runs:read")
    require_readable_run(run, request.auth)
    return read_transcript(run).agent_messages


@with_fields_of(run_figures.NamedUsage, "name replies unpriced input_tokens output_tokens")
class UsageOut(Schema):
    """The usage of one agent (with its sub-agents), model, person or day. `unpriced` replies are not in the cost."""

    cost_usd: str = Field(validation_alias="cost")


class UsageListOut(Schema):
    """The usage of a period, the costliest first; days are in order."""

    items: list[UsageOut]


@router.get("/usage", response=UsageListOut, summary="Add up what runs used", tags=["usage"])
def read_usage(
    request: Authenticated,
    by: run_figures.UsageKey = run_figures.UsageKey.AGENT,
    since: Annotated[str, Query(description="first day (UTC), such as 2026-11-24")] = "",
    until: Annotated[str, Query(description="last day (UTC)")] = "",
) -> dict[str, tuple[run_figures.NamedUsage, ...]]:
    """Add up replies, tokens and cost from day to day; without days the last seven. For admins.

    The sweeper counts every minute.
    """
    wiring.resolve_access().require(request.auth, "admin")
    return {"items": run_figures.read_usage(by, *read_period(since, until, ("since", "until")))}
