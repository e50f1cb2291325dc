"""Serves prompts, and their trials on recorded runs, in the API, for admins."""

from typing import Annotated, Any
from uuid import UUID

from ninja import Router, Schema, Status
from pydantic import WithJsonSchema

from approvals.governance import prompt_list, prompt_versions
from approvals.governance.prompt_list import PromptText, PromptView
from approvals.governance.prompt_versions import CODE, ProposedVersion
from approvals.rights.access import AccessService
from approvals.rights.principals import Scope
from runtime.core.values.limits import MAX_INSTRUCTIONS
from runtime.errors import InvalidInput
from runtime.store.tables.jobs import MAX_RUNS, TrialRow
from runtime.web.api.history import JobOut
from runtime.web.requests import Authenticated, Body, Reason
from runtime.web.schemas import with_fields_of

router = Router(tags=["prompts"])

NAME = Annotated[Any, WithJsonSchema({"type": "string"})]
NUMBER = Annotated[Any, WithJsonSchema({"type": "integer", "minimum": 0})]


@with_fields_of(prompt_list.PromptText, "number text note digest author at labels")
class PromptVersionOut(Schema):
    """One version. `author` is null for the command line."""


@with_fields_of(ProposedVersion)
class ProposalOut(Schema):
    """A version that is proposed for production. `effective_at` is null until another admin confirms it."""


@with_fields_of(PromptView, "name agents variables production broken")
class PromptOut(Schema):
    """A prompt. `production` is the number of the version that new runs use, 0 the text in the code.

    Each version has the `variables`. `broken` says why the stored rows do not verify, empty if they do.
    """

    versions: list[PromptVersionOut]
    proposals: list[ProposalOut]

    @staticmethod
    def resolve_versions(prompt: PromptView) -> list[PromptText]:
        """Return the versions, without the text in the code."""
        return [text for text in prompt.texts if text.number != CODE]

    @staticmethod
    def resolve_proposals(prompt: PromptView) -> list[ProposedVersion]:
        """Return the proposals that wait for another admin."""
        return [waiting.proposal for waiting in prompt.waiting]


class SavePromptIn(Body):
    """Save a text as the next version of a prompt that an agent uses."""

    name: NAME = None
    text: Annotated[Any, WithJsonSchema({"type": "string", "maxLength": MAX_INSTRUCTIONS})] = None
    note: Reason = ""


class PromptNumberIn(Body):
    """Name a version of a prompt; 0 is the text in the code."""

    name: NAME = None
    number: NUMBER = None


class PromptLabelIn(PromptNumberIn):
    """Let a label, such as `staging`, point to a version."""

    label: Annotated[Any, WithJsonSchema({"type": "string", "maxLength": 40})] = None


@router.get("/prompts", response=list[PromptOut])
def list_prompts(request: Authenticated) -> tuple[PromptView, ...]:
    """List all prompts with their versions, the newest first. For admins."""
    AccessService().require(request.auth, Scope.ADMIN)
    return prompt_list.list_prompts()


@router.post("/prompts/versions", response=PromptOut)
def save_prompt(request: Authenticated, body: SavePromptIn) -> PromptView:
    """Save a version. A text that the last version has too makes no new one. For admins."""
    AccessService().require(request.auth, Scope.ADMIN)
    prompt_versions.save(body.name, body.text, note=body.note, actor=request.auth)
    return prompt_list.read_prompt(body.name)


@router.post("/prompts/label", response=PromptOut)
def label_prompt(request: Authenticated, body: PromptLabelIn) -> PromptView:
    """Set a label other than `production`. For admins."""
    AccessService().require(request.auth, Scope.ADMIN)
    prompt_versions.label_version(
        read_prompt_name(body.name), body.label, check_number(body.number), actor=request.auth
    )
    return prompt_list.read_prompt(body.name)


@router.post("/prompts/propose", response=PromptOut)
def propose_prompt(request: Authenticated, body: PromptNumberIn) -> PromptView:
    """Propose a version for production. For admins."""
    AccessService().require(request.auth, Scope.ADMIN)
    prompt_versions.propose(
        read_prompt_name(body.name), check_number(body.number), actor=request.auth
    )
    return prompt_list.read_prompt(body.name)


@router.post("/prompts/confirm", response=PromptOut)
def confirm_prompt(request: Authenticated, body: PromptNumberIn) -> PromptView:
    """Put a proposed version in production. For an admin who is independent of the one who proposed it."""
    AccessService().require(request.auth, Scope.ADMIN)
    prompt_versions.confirm(
        read_prompt_name(body.name), check_number(body.number), actor=request.auth
    )
    return prompt_list.read_prompt(body.name)


@router.post("/prompts/withdraw", response=PromptOut)
def withdraw_prompt(request: Authenticated, body: PromptNumberIn) -> PromptView:
    """Withdraw a proposal. For admins."""
    AccessService().require(request.auth, Scope.ADMIN)
    prompt_versions.withdraw(
        read_prompt_name(body.name), check_number(body.number), actor=request.auth
    )
    return prompt_list.read_prompt(body.name)


def read_prompt_name(name: object) -> str:
    """Return the name of a prompt. Raise InvalidInput."""
    if not isinstance(name, str):
        raise InvalidInput("name", "must be the name of a prompt")
    return name


def check_number(number: object) -> int:
    """Return the number of a version. Raise InvalidInput."""
    if isinstance(number, bool) or not isinstance(number, int):
        raise InvalidInput("number", "must be the number of a version")
    return number


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
    trial = prompt_list.ask(
        read_prompt_name(body.name), check_number(body.number), body.runs, actor=request.auth
    )
    return Status(202, trial.stored)


@router.get("/prompts/trials/{uuid:trial}", response=TrialOut)
def read_prompt_trial(request: Authenticated, trial: UUID) -> TrialRow:
    """Read a trial, with the recorded and the tried replies so far. For admins."""
    AccessService().require(request.auth, Scope.ADMIN)
    return prompt_list.find(trial).stored
