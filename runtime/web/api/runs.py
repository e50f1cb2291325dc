"""API operations on runs and kill switches. config/api.py has authentication and errors."""

import re
from dataclasses import replace
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal
from uuid import UUID

from django.http import Http404, HttpResponse, JsonResponse
from ninja import Query, Router, Schema, Status
from pydantic import AfterValidator, StringConstraints, WithJsonSchema

from runtime.control.interventions import cancel, pause, resume, retry, send_message
from runtime.control.kill_switches import disengage, engage, list_switches
from runtime.control.start import start
from runtime.control.user_actions import require_readable_run, require_whole_run
from runtime.core.run.retries import RateLimitWait
from runtime.core.values.budgets import NAMES
from runtime.core.values.limits import MAX_KEY, MAX_MESSAGE
from runtime.ports import wiring
from runtime.reads import entries, journal, outcomes, run_page, run_rows, workers
from runtime.reads.run_rows import GateView, LegalHold, Page, RunDetail, WaitView
from runtime.reads.transcript import read_transcript
from runtime.store.tables.kill_switches import KillSwitchRow
from runtime.web.requests import OPTIONAL_BODY, Authenticated, Body, Reason, with_example
from runtime.web.schemas import with_fields_of

router = Router(tags=["runs"])


def _require_storable(text: str) -> str:
    if "\x00" in text:
        raise ValueError("must not contain a NUL character")
    return text


Text = Annotated[
    str, StringConstraints(min_length=1, max_length=MAX_KEY), AfterValidator(_require_storable)
]
Limit = Annotated[int, Query(ge=1, le=200)]

WAIT_HEADER = "Signoff-Wait"
PERSON_HEADER = "Signoff-Person"  # for config.longpoll, which does not send it on
MAX_WAIT_SECONDS = 60  # proxies close connections that are silent for longer


def _check_duration(text: str) -> str:
    if not re.fullmatch(r"[1-9][0-9]?s", text) or int(text[:-1]) > MAX_WAIT_SECONDS:
        raise ValueError(f"must be from 1s to {MAX_WAIT_SECONDS}s, for example 30s")
    return text


Wait = Annotated[
    str,
    AfterValidator(_check_duration),
    WithJsonSchema({"type": "string", "pattern": "^[1-9][0-9]?s$", "examples": ["30s"]}),
]

_FOR_PEOPLE = ("suspended", "paused", "quarantined")


class Until(StrEnum):
    """The state of a run that a waiting request waits for."""

    SUSPENDED = "suspended"  # the run waits for people, is paused or quarantined, or has ended
    ENDED = "ended"  # the run has ended

    def holds(self, run: RunDetail) -> bool:
        """Tell whether the run has reached this state."""
        over = run.ended_at is not None
        return over or (self is Until.SUSPENDED and run.status in _FOR_PEOPLE)


BUDGET_SCHEMA: dict[str, Any] = {
    "type": ["object", "null"],
    "properties": {name: {"type": ["number", "string", "null"]} for name in NAMES},
    "additionalProperties": False,
}

_RUN: dict[str, Any] = {
    "agent": "hr_onboarding",
    "input": {"full_name": "New Hire", "username": "newhire", "security_level": 2},
    "business_key": "HR-77",
}


class RunIn(Body):
    """The run to start. The same business key, from the same person for the same agent, returns the same run.

    A run in a `thread` remembers what earlier ones said, if its agent has a memory. `budget` limits the run; it can
    only be stricter than the installation's.
    """

    model_config = with_example(**_RUN)

    agent: Text
    input: Any
    business_key: Text | None = None
    thread: Text | None = None
    budget: Annotated[Any, WithJsonSchema(BUDGET_SCHEMA)] = None


class CancelIn(Body):
    """The reason. Any value is accepted, so that a caller who may not read the run gets 404, not 422."""

    model_config = with_example(reason="Started for the wrong person.")

    reason: Reason = ""


class PauseIn(Body):
    """An optional reason."""

    reason: Reason = ""


class ResumeIn(Body):
    """An optional reason."""

    reason: Reason = ""


class RetryIn(Body):
    """The reason; the same rule as for cancelling."""

    reason: Reason = ""


class MessageIn(Body):
    """The text of the message. `cut_reply` cuts off the reply that the agent's model is giving."""

    model_config = with_example(text="Use level 2 instead.", cut_reply=True)

    text: Annotated[Any, WithJsonSchema({"type": "string", "maxLength": MAX_MESSAGE})]
    cut_reply: Annotated[Any, WithJsonSchema({"type": "boolean"})] = False


@with_fields_of(LegalHold)
class HoldOut(Schema):
    """A legal hold: who holds the run, since when, and why."""


@with_fields_of(GateView, "id kind state frame call tool path opened_at approval")
class GateOut(Schema):
    """A gate whose decision is not applied yet; `approval` is the id of its approval request."""


@with_fields_of(WaitView)
class WaitOut(Schema):
    """A call that waits for an event whose data contains `match`, until `until` at the latest."""


@with_fields_of(RateLimitWait)
class RateLimitOut(Schema):
    """A model call that the rate limit of its provider puts off: until when, and how often since `since`."""


class LateOut(Schema):
    """The outcome of an attempt at a call, recorded after its worker had lost the run.

    `outcome` is `returned`, with the `result`, or `failed`, with the `error`. `decided_by` is the person who had
    resolved that attempt, `contradicts` says that they had reported something else, `note` describes the effect.
    """

    frame: str
    call: str
    tool: str
    attempt: int
    at: datetime
    outcome: Literal["returned", "failed"]
    result: Any
    error: str | None
    decided_by: str | None
    contradicts: bool
    note: str

    @staticmethod
    def build_from_view(late: outcomes.LateView) -> "LateOut":
        """Convert a late outcome to its form in the API."""
        return LateOut(
            frame=late.frame,
            call=late.call,
            tool=late.tool,
            attempt=late.attempt,
            at=late.at,
            outcome="returned" if late.returned else "failed",
            result=late.value if late.returned else None,
            error=None if late.returned else late.value,
            decided_by=late.by or None,
            contradicts=late.contradicts,
            note=f"{late.by} {late.label}" if late.by else late.label,
        )


@with_fields_of(
    RunDetail,
    "id agent status status_text next_try_at input output reason business_key thread requester origin"
    " created_at ended_at removed_at archived_at unheard history_begins history_removed_at",
)
class RunOut(Schema):
    """A run. `reason` says why it failed, or was quarantined or cancelled.

    `status_text` and `next_try_at` describe a run that waits for a model provider: its last answer, and the time of the
    next call. `status_text` also says that a run waits for the object store, and why, or that it waits to be tried
    after it lost two workers, with its number in the queue, and which of its agents no live worker has. `rate_limits`
    are its model calls that wait for the rate limit of their provider. `unheard` counts the messages that its agent has
    not received yet. `origin` lists the people who cannot decide in it: its requester, the origin of the run it was
    forked or imported from, the senders of its messages and events, and people who tried it again. `removed_at` is when
    retention erased input, output, reason and journal, `archived_at` when they left for the archive; a list does not
    read them there. `legal_hold` says who holds the run, and why. Entries of a long run before `history_begins` were
    removed at `history_removed_at`.
    """

    rate_limits: list[RateLimitOut]
    legal_hold: HoldOut | None
    waits: list[WaitOut]
    gates: list[GateOut]


@with_fields_of(run_page.BudgetUsage, "frame agent limit used allowed unpriced")
class LimitUseOut(Schema):
    """The usage of one limit: of the run if `frame` is null, else of a frame with its own limits.

    `used` and `allowed` are decimal text, `usd` in US dollars; `unpriced` replies have no known price.
    """


class RunPage(Schema):
    """A page of runs, newest first; `next` is the cursor of the next page."""

    items: list[RunOut]
    next: str | None


@with_fields_of(entries.JournalItem, "position at")
class JournalItemOut(Schema):
    """One entry: the events of one commit."""

    events: list[Any]


class JournalPage(Schema):
    """A page of the journal, oldest first."""

    items: list[JournalItemOut]
    next: str | None


class StopIn(Body):
    """The agent, empty for all, and the reason."""

    model_config = with_example(agent="hr_onboarding", reason="It mails the wrong people.")

    agent: Annotated[Any, WithJsonSchema({"type": "string"})]
    reason: Reason


@with_fields_of(KillSwitchRow)
class StopOut(Schema):
    """A kill switch: no effect starts for `agent` (all agents if empty) until it is lifted."""


@router.post("/runs", response={201: RunOut, 200: RunOut})
def start_run(request: Authenticated, body: RunIn) -> Status[RunDetail]:
    """Start a run, or return the one of this business key (200)."""
    started = start(**body.dict(), actor=request.auth)
    return Status(201 if started.created else 200, require_readable_run(started.run, request.auth))


@router.get("/runs", response=RunPage)
def list_runs(
    request: Authenticated,
    business_key: Text | None = None,
    limit: Limit = 50,
    cursor: UUID | None = None,
) -> Page[RunDetail]:
    """List the runs that you may read, newest first."""
    access = wiring.resolve_access()
    access.require(request.auth, "runs:read")
    page = run_rows.run_details(
        access.select_readable_runs(request.auth),
        business_key=business_key,
        limit=limit,
        cursor=cursor,
    )
    return replace(page, items=workers.with_missing_agents(page.items))


@router.get("/runs/{uuid:run}", response=RunOut)
def read_run(
    request: Authenticated,
    response: HttpResponse,
    run: UUID,
    wait: Wait | None = None,
    until: Until = Until.ENDED,
) -> RunDetail:
    """Read a run. With `wait` the answer comes when the run reaches the state `until`, or after that time.

    The header `Signoff-Wait` then says `met`, or `unmet` with the time. `suspended` means that the run waits for
    people, is paused or quarantined, or has ended.
    """
    wiring.resolve_access().require(request.auth, "runs:read")
    (detail,) = workers.with_missing_agents(
        [run_rows.with_archive(require_readable_run(run, request.auth))]
    )
    if wait is not None:
        response[WAIT_HEADER] = "met" if until.holds(detail) else f"unmet; {wait}"
        response[PERSON_HEADER] = request.auth.person
    return detail


@router.post("/runs/{uuid:run}/cancel", response=RunOut)
def cancel_run(request: Authenticated, run: UUID, body: CancelIn) -> RunDetail:
    """Cancel a run, with a reason. Its gates close, and running calls may finish."""
    wiring.resolve_access().require(request.auth, "runs:cancel")
    return cancel(run=run, reason=body.reason, actor=request.auth)


@router.post("/runs/{uuid:run}/pause", response=RunOut)
def pause_run(request: Authenticated, run: UUID, body: PauseIn) -> RunDetail:
    """Pause a run. Nothing new starts until it is resumed."""
    wiring.resolve_access().require(request.auth, "runs:control")
    return pause(run=run, reason=body.reason, actor=request.auth)


@router.post("/runs/{uuid:run}/resume", response=RunOut)
def resume_run(request: Authenticated, run: UUID, body: ResumeIn = OPTIONAL_BODY) -> RunDetail:
    """Resume a paused run. A body is not required."""
    wiring.resolve_access().require(request.auth, "runs:control")
    sent: ResumeIn | None = body
    return resume(run=run, reason=sent.reason if sent else "", actor=request.auth)


@router.post("/runs/{uuid:run}/retry", response=RunOut)
def retry_run(request: Authenticated, run: UUID, body: RetryIn) -> RunDetail:
    """Continue a failed run from where it failed; no write is repeated."""
    wiring.resolve_access().require(request.auth, "runs:control")
    return retry(run=run, reason=body.reason, actor=request.auth)


@router.post("/runs/{uuid:run}/messages", response={202: RunOut})
def write_to_run(request: Authenticated, run: UUID, body: MessageIn) -> Status[RunDetail]:
    """Send a message to the first agent of a run; its next model call has it. `cut_reply` makes that call now."""
    wiring.resolve_access().require(request.auth, "runs:control")
    return Status(
        202, send_message(run=run, text=body.text, cut_reply=body.cut_reply, actor=request.auth)
    )


@router.get("/runs/{uuid:run}/budget", response=list[LimitUseOut])
def read_budget(request: Authenticated, run: UUID) -> tuple[run_page.BudgetUsage, ...]:
    """Read the usage of a run's limits, its own first."""
    wiring.resolve_access().require(request.auth, "runs:read")
    require_readable_run(run, request.auth)
    return run_page.read_budget_usage(run)


@router.get("/runs/{uuid:run}/late-outcomes", response=list[LateOut])
def read_late_outcomes(request: Authenticated, run: UUID) -> list[LateOut]:
    """List the late outcomes of calls, oldest first."""
    wiring.resolve_access().require(request.auth, "runs:read")
    require_readable_run(run, request.auth)
    return [
        LateOut.build_from_view(late)
        for late in outcomes.list_late_outcomes_of_run(run, read_transcript(run))
    ]


@router.get("/runs/{uuid:run}/journal", response=JournalPage)
def read_journal(
    request: Authenticated, run: UUID, limit: Limit = 50, cursor: int | None = None
) -> Page[entries.JournalItem]:
    """List the entries in order. Only admins see the error texts of providers (`said`)."""
    wiring.resolve_access().require(request.auth, "runs:read")
    require_readable_run(run, request.auth)
    as_admin = wiring.resolve_access().may_read_continuations(request.auth)
    return entries.read_journal_page(run, limit=limit, cursor=cursor, provider_errors=as_admin)


@router.get("/contents/{digest}")
def read_content(request: Authenticated, digest: str) -> Any:
    """Read a result by its hash, if you may read a run with it."""
    access = wiring.resolve_access()
    access.require(request.auth, "runs:read")
    content = journal.find_blob(access.select_readable_runs(request.auth), digest)
    if content is None:
        raise Http404("There is no such content.")
    return JsonResponse(content[0], safe=False)


@router.get("/runs/{uuid:run}/continuation")
def read_continuation(request: Authenticated, run: UUID) -> Any:
    """Read the continuation of a run, without secrets; for admins."""
    require_whole_run(run, request.auth)
    document = entries.read_run_state(run)
    if document is None:
        raise Http404("This run has no continuation: it has ended.")
    return document


@router.get("/stops", response=list[StopOut])
def list_stops(request: Authenticated, lifted: bool = False) -> list[KillSwitchRow]:
    """List the engaged kill switches, with `lifted` the ones lifted last. For admins."""
    return list_switches(lifted=lifted, actor=request.auth)


@router.post("/stops", response={201: StopOut})
def put_stop(request: Authenticated, body: StopIn) -> Status[KillSwitchRow]:
    """Engage a kill switch for an agent, or for all. For admins."""
    return Status(201, engage(agent=body.agent, reason=body.reason, actor=request.auth))


@router.post("/stops/{int:stop}/lift", response=StopOut)
def lift_stop(request: Authenticated, stop: int) -> KillSwitchRow:
    """Disengage a kill switch, so that its runs continue. For admins."""
    return disengage(stop=stop, actor=request.auth)
