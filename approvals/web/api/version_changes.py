"""Serves decisions on version changes in the API, for admins."""

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from ninja import Router, Schema
from pydantic import WithJsonSchema

from approvals.decisions import batch
from approvals.governance import version_changes
from approvals.rights import principals
from approvals.rights.access import AccessService
from approvals.rights.principals import Scope
from runtime.web.requests import Authenticated, Body, Reason
from runtime.web.schemas import with_fields_of

router = Router(tags=["approvals"])

TEXT = {"type": "string"}


class VersionChangeOut(Schema):
    """A change of an agent for which runs wait, between versions that are named by their fingerprints.

    `count` runs wait at a version gate; you may decide `decidable` of them. `changes` name the changed parts, null if a
    version was never published: then each run is decided alone. `decided_by` decided it last, null without a decision.
    """

    agent: str
    before: str
    after: str
    count: int
    decidable: int
    changes: list[str] | None
    decided_by: str | None
    decided_at: datetime | None


@with_fields_of(batch.Left, "run reason")
class LeftOutRun(Schema):
    """A run that still waits at its version gate, and why."""

    request: UUID

    @staticmethod
    def resolve_request(run: batch.Left) -> UUID:
        """Return the id of the approval."""
        return run.approval_id


class ContinuedOut(Schema):
    """The number of runs that continue, and those that still wait."""

    continued: int
    left: list[LeftOutRun]


class WithdrawIn(Body):
    """Withdraw the decision on this change. The `reason` is required."""

    agent: Annotated[Any, WithJsonSchema(TEXT)] = None
    before: Annotated[Any, WithJsonSchema(TEXT)] = None
    after: Annotated[Any, WithJsonSchema(TEXT)] = None
    reason: Reason = ""


class ContinueIn(WithdrawIn):
    """Continue all runs that wait for this change. `count` confirms their number; the `reason` is required."""

    count: Annotated[Any, WithJsonSchema({"type": "integer"})] = None


class VersionDecisionOut(Schema):
    """A decision by which runs that reach this change later continue. `count` runs waited when it was made."""

    agent: str
    before: str
    after: str
    by: str
    reason: str
    count: int
    at: datetime


@with_fields_of(batch.Withdrawn)
class WithdrawnOut(Schema):
    """The number of runs that wait again, as their decision was not final yet.

    `left` runs were busy and still continue: withdraw once more before their decision is final.
    """


@router.get("/version-changes", response=list[VersionChangeOut])
def list_version_changes(request: Authenticated) -> list[VersionChangeOut]:
    """List the changes of agents for which runs wait. For admins."""
    AccessService().require(request.auth, Scope.ADMIN)
    return [
        VersionChangeOut(
            agent=waiting.pair.agent,
            before=waiting.pair.before,
            after=waiting.pair.after,
            count=waiting.count,
            decidable=waiting.decidable,
            changes=None
            if waiting.differences is None
            else [change.part for change in waiting.differences],
            decided_by=waiting.decided_by,
            decided_at=waiting.decided_at,
        )
        for waiting in version_changes.list_waiting(principals.find_principal(request.auth))
    ]


@router.post("/version-changes", response=ContinuedOut)
def continue_runs(request: Authenticated, body: ContinueIn) -> batch.Decided:
    """Let all runs of a change continue, and those that reach it later. For admins who may decide at version gates."""
    AccessService().require(request.auth, Scope.ADMIN)
    return batch.continue_all(**body.dict(), actor=request.auth)


@router.get("/version-decisions", response=list[VersionDecisionOut])
def list_version_decisions(request: Authenticated) -> tuple[Any, ...]:
    """List the latest 50 decisions on changes that count for later runs. For admins."""
    AccessService().require(request.auth, Scope.ADMIN)
    return version_changes.list_latest_decisions()


@router.post("/version-decisions/withdraw", response=WithdrawnOut)
def withdraw_version_decision(request: Authenticated, body: WithdrawIn) -> batch.Withdrawn:
    """Withdraw the decision on a change. Runs that reach it later ask again. For admins."""
    AccessService().require(request.auth, Scope.ADMIN)
    return batch.withdraw(**body.dict(), actor=request.auth)
