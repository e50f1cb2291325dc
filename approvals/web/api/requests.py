"""Serves approvals in the API. The API it is mounted in authenticates callers and converts errors to responses."""

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from ninja import Router, Schema, Status
from pydantic import WithJsonSchema

from approvals.decisions import external_requests
from approvals.decisions.decide import ask_preview, find_preview, resolve, undo
from approvals.decisions.decide import decide as record_decision
from approvals.decisions.external_requests import ExternalClaim
from approvals.decisions.teamwork import extend as extend_deadline
from approvals.errors import ApprovalError, NotFound, TamperedWith
from approvals.people import preferences as zones
from approvals.reads import approval_views, filters, history, usual
from approvals.requests.argument_changes import ArgumentChange
from approvals.rights import principals
from approvals.rights.access import AccessService
from approvals.rights.principals import Scope
from approvals.rules.unusual_values import UnusualKind, UnusualValue
from approvals.signed.votes import Cast
from runtime.core.values.budgets import NAMES
from runtime.core.values.enums import CallPreview, GateKind
from runtime.core.values.verdicts import VERDICTS_AT
from runtime.errors import InvalidInput, KeyMissing, ObjectStoreDown, Tampered
from runtime.ports.access import Actor
from runtime.ports.approvals import CallOutcome
from runtime.reads import outcomes
from runtime.reads.transcript import read_transcript
from runtime.web.api.runs import LateOut
from runtime.web.requests import Authenticated, Body, Reason, with_example
from runtime.web.schemas import with_fields_of

router = Router(tags=["approvals"])


def parse_id(text: str, unknown: type[ApprovalError] = NotFound) -> UUID:
    """Return the id in an address. Raise the error of an `unknown` one for another text."""
    try:
        return UUID(text)
    except ValueError as exc:
        raise unknown from exc


class NextStepOut(Schema):
    """What follows at `at` if no person decides.

    `step` is `deny`, `fail` (the call is denied and its run fails) or `answer` (the policy gives the result, and the
    call is not made). With `escalate` these groups and people may decide too, and another step follows.
    """

    at: datetime
    step: str
    groups: list[str]
    people: list[str]


# Columns that only pages show; and what an approval has besides its columns.
_NOT_IN_API = ("schema", "effect", "channel", "next_at")
_ADDED = ("run", "digest", "confirm", "tampered", "quorum", "acts_for", "changes_requested")


class ApprovalOut(Schema):
    """One request.

    `kind` is `approval`, `in_doubt` for a call with an unknown outcome, or `hold`, `limit` or `version` if the agent
    itself is blocked: then `tool` and `call` are empty and `args` holds the reason.

    A decision must name `digest`; `args` are complete. `edited` are the arguments of an approval with changes, and
    `edited_preview` what its approver was shown that the call does with them, else null. `preview` is what the worker
    found out about the call before it asked, null if there is nothing. A call in doubt cannot be run again before
    `not_before`, and a reported result must fit its `result_schema`, as must the result of an answer. Retention removed
    `args` at `removed_at`. `origin` lists the people in the run's origin, with the requester: they cannot decide.
    `confirm` names the object of a high-risk call, which an approval must repeat; otherwise it is null. If the stored
    request was changed, `tampered` names the first value that does not verify, and it cannot be decided. `rule` is the
    rule of the policy that applies: `quorum` people must approve, and `voted` lists those who have. A deputy decides as
    `acts_for` or decided as `decided_for`, the name of the absent person; null for themselves. `changes_requested` says
    that it was denied with a request for changes. `revises` is the gate of the request to which this one is revision
    `revision`, null for a first proposal. `allowance` passed the call without a person, as its use number
    `allowance_use`. `first_expires_at` is the deadline before people extended it, null if they did not.
    `next_step` says what follows if no person decides, null without a deadline; `undecidable_at` since when too few
    people are left who could.
    """

    __annotations__ = {
        **approval_views.derive_types(
            name for name in approval_views.COLUMNS if name not in _NOT_IN_API
        ),
        **approval_views.derive_types(_ADDED),
        "next_step": NextStepOut | None,
    }


@with_fields_of(UnusualValue, "argument text")
class OddityOut(Schema):
    """An odd value of an argument: its kind, and why it is odd in words."""

    kind: UnusualKind


class ApprovalListedOut(ApprovalOut):
    """One request, with the odd values of a pending call, the oddest first."""

    oddities: list[OddityOut]


@with_fields_of(ExternalClaim)
class ExternalOut(Schema):
    """The request of an agent outside. Its `framework` and its `context` are its claims, not checked.

    The approval may be used until `valid_until`, and was used at `used_at`. `outcome` is `succeeded` or `failed`.
    """


class ApprovalDetailOut(ApprovalListedOut):
    """One request, with the late outcomes of its call in doubt that a worker reported after all.

    Odd values are compared with the calls of the tool that were approved in the 90 days before, and that you may read.
    `external` is null unless an agent outside asked.
    `late_outcomes` is null while the run is in the archive and the object store does not answer.
    """

    late_outcomes: list[LateOut] | None
    external: ExternalOut | None


class ApprovalPage(Schema):
    """One page of the list, oldest first; `next` is the cursor of the next page."""

    items: list[ApprovalListedOut]
    next: str | None


@with_fields_of(Cast, "person at reason")
class VoterOut(Schema):
    """An approval that the policy asked for. A deputy gave it in the place of `voted_for`."""

    voted_for: str | None

    @staticmethod
    def resolve_voted_for(voter: Cast) -> str | None:
        """Return the absent person."""
        return voter.absent


@with_fields_of(ArgumentChange, "path before after")
class EditOut(Schema):
    """An argument that an approval changed: its path, and its value before and after. Null also if it was not given."""


class DecisionOut(Schema):
    """One closed request.

    `verdict` is also `expired` or `cancelled`: then no person decided. `edited` is an approval with changes: `sentence`
    is the proposed call, and `edits` are the changed arguments, empty once retention has removed them. A deputy decided
    in the place of `decided_for`. `voters` approved where the policy asks for several people, or named ones; else it
    is empty. `channel` is `page`, `batch` (with others on a page), `slack` or `api`, null if it is not known. It is
    `allowance` if that `allowance` passed the call; `decided_by` had confirmed it. `outcome` is null until the call has
    ended. `tampered` names the first stored value that does not verify.
    """

    request: UUID
    run: UUID
    kind: str
    tool: str
    path: list[str]
    risk: str
    sentence: str
    requester: str
    verdict: str
    decided_by: str | None
    decided_for: str | None
    voters: list[VoterOut]
    edits: list[EditOut]
    reason: str
    channel: str | None
    allowance: UUID | None
    created_at: datetime
    decided_at: datetime
    seconds_to_decide: float | None
    outcome: str | None
    tampered: str | None

    @staticmethod
    def resolve_request(item: history.PastDecision) -> UUID:
        """Return the id of the request."""
        return item.stored.id


class DecisionPage(Schema):
    """One page of the history, the latest first; `next` is the cursor of the next page.

    A page may have fewer items than `limit`, and none, before the last one: a page looks at a bounded number of rows.
    """

    items: list[DecisionOut]
    next: str | None


_DECIDED = (
    *VERDICTS_AT[GateKind.APPROVAL],
    *VERDICTS_AT[GateKind.HOLD],
)  # a limit and a version as a hold


Kind = Annotated[str, WithJsonSchema({"type": "string", "enum": [approval_views.ANY, *GateKind]})]

State = Annotated[str, WithJsonSchema({"type": "string", "enum": [*approval_views.STATUSES]})]

Verdicts = Annotated[str, WithJsonSchema({"type": "string", "enum": [*filters.VERDICTS]})]

Outcomes = Annotated[str, WithJsonSchema({"type": "string", "enum": [*CallOutcome]})]

GRANT_SCHEMA = {"type": ["object", "null"], "propertyNames": {"enum": [*NAMES]}}


class DecisionIn(Body):
    """A verdict on the request with this `digest`.

    `grant` is the increase of each limit, where null removes it. `result` is the result that an `answer` gives instead
    of the call: required to answer, otherwise not allowed. `confirm` repeats that of the request: required to approve
    a high-risk call, whose object it names; an edit repeats the value that its arguments have in that place.
    `arguments` are all the arguments with which an `edit` approves the call: required to edit, otherwise not allowed.
    Secret ones may be left out, and stay. Of a request whose `preview` has `shown` or `missing`, an edit names instead
    the id of a `preview` that you asked for: its arguments are used, and the call starts only if it would still do what
    the preview says.

    Fields accept any value, so that a caller who may not read the request gets 404, not 422.
    """

    model_config = with_example(
        verdict="approve", digest="sha256:…", reason="Agreed with her lead."
    )

    verdict: Annotated[Any, WithJsonSchema({"enum": [*_DECIDED]})] = None
    digest: Annotated[Any, WithJsonSchema({"type": "string"})] = None
    reason: Reason = ""
    grant: Annotated[Any, WithJsonSchema(GRANT_SCHEMA)] = None
    result: Any = None
    confirm: Annotated[Any, WithJsonSchema({"type": ["string", "null"]})] = None
    arguments: Annotated[Any, WithJsonSchema({"type": ["object", "null"]})] = None
    preview: Annotated[Any, WithJsonSchema({"type": ["string", "null"], "format": "uuid"})] = None


class SettlementIn(Body):
    """The outcome of a call in doubt. `result` is its result: required if it happened, otherwise not allowed.

    `confirm` repeats that of the request: required to run a high-risk call again, whose object it names.
    """

    model_config = with_example(outcome="happened", result={"message_id": "1"}, reason="")

    outcome: Annotated[Any, WithJsonSchema({"enum": [*VERDICTS_AT[GateKind.IN_DOUBT]]})] = None
    result: Any = None
    reason: Reason = ""
    confirm: Annotated[Any, WithJsonSchema({"type": ["string", "null"]})] = None


class ExtensionIn(Body):
    """The new deadline, as RFC 3339 writes a time, and why it moves."""

    model_config = with_example(until="2030-01-31T09:00:00Z", reason="Her lead is away.")

    until: Annotated[Any, WithJsonSchema({"type": "string", "format": "date-time"})] = None
    reason: Reason = None


@router.get("/approvals", response=ApprovalPage)
def list_approvals(
    request: Authenticated,
    kind: Kind = approval_views.ANY,
    status: State | None = None,
    run: UUID | None = None,
    limit: int = approval_views.LIMIT,
    cursor: str | None = None,
) -> ApprovalPage:
    """List the requests you may read, oldest first; `kind` selects those of one kind."""
    AccessService().require(request.auth, Scope.APPROVALS_READ)
    page = approval_views.list_approvals(
        request.auth, kind=kind, status=status, run=run, limit=limit, cursor=cursor
    )
    oddities = usual.find_unusual_in_list(
        page.items, principals.find_principal(request.auth)
    ).by_request
    return ApprovalPage(
        items=[
            ApprovalListedOut(
                **_build_fields(approval), oddities=_build_oddities(oddities.get(approval.id, ()))
            )
            for approval in page.items
        ],
        next=page.next,
    )


@router.get("/decisions", response=DecisionPage)
def list_decisions(
    request: Authenticated,
    person: str = "",
    by: str = "",
    agent: str = "",
    tool: str = "",
    instance: str = "",
    risk: str = "",
    verdict: Verdicts | None = None,
    outcome: Outcomes | None = None,
    since: str = "",
    until: str = "",
    zone: str = "UTC",
    q: str = "",
    limit: int = history.LIMIT,
    cursor: str | None = None,
) -> history.HistoryPage:
    """List the decisions on requests you may read, the latest first.

    `person` decided or voted, or a deputy did so in their place; `by` started the run; `agent` proposed the call or is
    the agent of the run; `instance` is the id of the agent outside that asked. Names match exactly.
    `since` and `until` are days of `zone`, both inclusive, or times. `q` takes the same filters as `key:value`.
    """
    AccessService().require(request.auth, Scope.APPROVALS_READ)
    parameters = {name: request.GET.get(name, "") for name in (*filters.KEYS, "q")}
    criteria = filters.read_criteria(parameters, zones.find_zone(zone, "zone"))
    principal = principals.find_principal(request.auth)
    return history.read_page(principal, criteria, limit=limit, cursor=cursor)


@router.get("/approvals/{approval}", response=ApprovalDetailOut)
def read_approval(request: Authenticated, approval: str) -> ApprovalDetailOut:
    """Read one request, of any kind."""
    AccessService().require(request.auth, Scope.APPROVALS_READ)
    view = approval_views.read_approval(parse_id(approval), actor=request.auth)
    odd, claim = usual.find_unusual_at_decision(view), external_requests.read_claim(view)
    late: list[LateOut] | None = []
    if view.is_in_doubt:
        try:
            progress = read_transcript(view.run)
            ends = outcomes.list_late_outcomes_of_call(
                view.run, progress, frame=view.frame, call=view.call
            )
            late = [LateOut.build_from_view(outcome) for outcome in ends]
        except ObjectStoreDown:
            late = None  # the request and its decision are in Postgres
    return ApprovalDetailOut(
        **_build_fields(view),
        oddities=_build_oddities(odd),
        late_outcomes=late,
        external=None if claim is None else ExternalOut.from_orm(claim),
    )


@router.post("/approvals/{approval}/decision", response=ApprovalOut)
def decide_approval(
    request: Authenticated, approval: str, body: DecisionIn
) -> approval_views.ApprovalView:
    """Approve, deny, answer, edit or request changes to a call, or `continue` or `stop` a frame.

    The decision takes effect at `effective_at`, and the run does not go on before: until then you can undo it. That is
    after the seconds of the policy's rule, else of `SIGNOFF_UNDO_SECONDS` (10 by default). It is null for a decision
    that takes effect at once, as on a call at high risk.

    A denial needs a reason, which the agent's model receives. `request_changes` denies too: its reason names the
    changes with which the agent proposes the call again. An answered call is never made. An edited one is approved with
    other arguments. `stop` ends the run and needs a reason too.
    """
    # A result or arguments of null are others than none.
    fields = {"verdict": None, "digest": None, "reason": "", **body.dict(exclude_unset=True)}
    return record_decision(approval_id=parse_id(approval), actor=request.auth, **fields)


@router.post("/approvals/{approval}/undo", response=ApprovalOut)
def undo_decision(request: Authenticated, approval: str) -> approval_views.ApprovalView:
    """Undo your decision before `effective_at`, or withdraw your vote while others must vote."""
    return undo(approval_id=parse_id(approval), actor=request.auth)


@router.post("/approvals/{approval}/extension", response=ApprovalOut)
def extend_approval(
    request: Authenticated, approval: str, body: ExtensionIn
) -> approval_views.ApprovalView:
    """Extend the deadline of a pending request that you may decide, or any as an admin: to at most 30 days from now.

    It is never shortened. Votes and the digest stay valid. An agent outside keeps its deadline.
    """
    return extend_deadline(
        approval_id=parse_id(approval), until=body.until, reason=body.reason, actor=request.auth
    )


@router.post("/runs/{run}/gates/{gate}/settle", response=ApprovalOut)
def settle_gate(
    request: Authenticated, run: str, gate: str, body: SettlementIn
) -> approval_views.ApprovalView:
    """Resolve a call in doubt. Giving up needs a reason, which the model receives."""
    fields = {"outcome": None, "reason": "", **body.dict(exclude_unset=True)}
    return resolve(run=parse_id(run), gate=parse_id(gate), actor=request.auth, **fields)


def _build_fields(approval: approval_views.ApprovalView) -> dict[str, Any]:
    return ApprovalOut.from_orm(approval).dict()


def _build_oddities(oddities: Iterable[UnusualValue]) -> list[OddityOut]:
    return [OddityOut.from_orm(oddity) for oddity in oddities]


class EditPreviewIn(Body):
    """All the arguments of an edit, as in a decision, on the request with this `digest`."""

    digest: Annotated[Any, WithJsonSchema({"type": "string"})] = None
    arguments: Annotated[Any, WithJsonSchema({"type": "object"})] = None


class EditPreviewOut(Schema):
    """A preview of an edit. `state` is `queued`, `running`, `done` or `failed`; `problem` says why it failed.

    `shown` is what the call would do, null without it: then `missing` says why, and the edit can still be approved, or
    the tool `refused` the arguments, and it cannot.
    """

    id: UUID
    at: datetime
    state: str
    problem: str
    shown: Any
    missing: str
    refused: str


@router.post("/approvals/{approval}/previews", response={202: EditPreviewOut})
def preview_edit(
    request: Authenticated, approval: str, body: EditPreviewIn
) -> Status[EditPreviewOut]:
    """Have a worker preview a pending call with your arguments. It takes the place of your last preview of this call.

    Nothing is decided. Read the result, then name the id in a decision `edit`. Only for a request whose `preview` has
    `shown` or `missing`: the tool of any other makes none.
    """
    preview = ask_preview(approval_id=parse_id(approval), actor=request.auth, **body.dict())
    if preview is None:
        raise InvalidInput("arguments", "have no preview: decide with these arguments")
    return Status(202, _read_preview(parse_id(approval), preview, request.auth))


@router.get("/approvals/{approval}/previews/{uuid:preview}", response=EditPreviewOut)
def read_edit_preview(request: Authenticated, approval: str, preview: UUID) -> EditPreviewOut:
    """Read your last preview of this call: how far it is, and what the call would do."""
    AccessService().require(request.auth, Scope.APPROVALS_READ)
    return _read_preview(parse_id(approval), preview, request.auth)


def _read_preview(approval: UUID, preview: UUID, actor: Actor) -> EditPreviewOut:
    row = find_preview(approval_id=approval, preview=preview, actor=actor)
    if row is None:
        raise NotFound
    try:
        result = row.preview() if row.state == "done" else CallPreview()
    except (Tampered, KeyMissing) as exc:
        raise TamperedWith(str(exc)) from exc
    return EditPreviewOut(
        id=row.id,
        at=row.at,
        state=row.state,
        problem=row.problem,
        shown=result.shown,
        missing=result.missing,
        refused=result.refused,
    )
