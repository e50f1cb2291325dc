"""Serves trials of prompts on recorded runs in the API, for admins."""

from typing import Annotated, Any
from uuid import UUID

from ninja import Router, Schema, Status
from pydantic import WithJsonSchema

from approvals.governance import prompt_trials
from approvals.rights.access import AccessService
from approvals.rights.principals import Scope
from approvals.web.api.prompts import PromptNumberIn, name_in, number_in
from runtime.store.tables.jobs import MAX_RUNS, TrialRow
from runtime.web.api.history import JobOut
from runtime.web.requests import Authenticated

router = Router(tags=["prompts"])


class SaidOut(Schema):
    """The reply of a model: a text, calls with `tool` and `args`, or a typed result.

    `cost` is in millionths of a US dollar.
    """

    text: str
    calls: list[dict[str, Any]]
    output: Any = None
    cost: int | None


class TriedReplyOut(Schema):
    """A recorded reply and that of the trial. `error` says why there is none."""

    position: int
    path: list[str]
    version: int
    recorded: SaidOut
    tried: SaidOut | None
    differs: bool
    error: str


class TriedRunOut(Schema):
    """A run and its replies. `error` says why it could not be read."""

    run: UUID
    replies: list[TriedReplyOut]
    error: str


class TrialOut(JobOut):
    """A trial. `state` is `queued`, `running`, `done` or `failed`; `problem` says why it ended early.

    `wanted` is the number of runs asked for, `runs` are those that were tried so far.
    """

    name: str
    number: int
    wanted: int
    runs: list[TriedRunOut]

    @staticmethod
    def resolve_name(row: TrialRow) -> str:
        """Return the name of the prompt."""
        return row.prompt


class TryPromptIn(PromptNumberIn):
    """Try a version of a prompt on the last recorded runs that used it."""

    runs: Annotated[
        Any, WithJsonSchema({"type": "integer", "minimum": 1, "maximum": MAX_RUNS, "default": 3})
    ] = 3


@router.post("/prompts/trials", response={202: TrialOut})
def try_prompt(request: Authenticated, body: TryPromptIn) -> Status[TrialRow]:
    """Have a worker ask the models of recorded runs again, with another version. No call is made. For admins."""
    AccessService().require(request.auth, Scope.ADMIN)
    trial = prompt_trials.ask(
        name_in(body.name), number_in(body.number), body.runs, actor=request.auth
    )
    return Status(202, trial.stored)


@router.get("/prompts/trials/{uuid:trial}", response=TrialOut)
def read_prompt_trial(request: Authenticated, trial: UUID) -> TrialRow:
    """Read a trial, with the recorded and the tried replies so far. For admins."""
    AccessService().require(request.auth, Scope.ADMIN)
    return prompt_trials.find(trial).stored
