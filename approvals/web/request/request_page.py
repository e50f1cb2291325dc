"""Shared by the pages of requests: reads a request, its context and teamwork, and answers late decisions."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any, Final, Literal, TypeVar
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.utils.cache import patch_vary_headers

from approvals import clock
from approvals.decisions import checks, external_requests, teamwork
from approvals.decisions.teamwork import MAX_DAYS
from approvals.errors import AlreadyClosed, DigestMismatch
from approvals.people import absences
from approvals.reads import approval_views, deciders, marks
from approvals.reads.approval_views import ApprovalView
from approvals.reads.inbox import Neighbours
from approvals.rights.principals import Scope
from approvals.web import list_position as places
from approvals.web.components.arguments import list_arguments, list_fields
from approvals.web.components.call_status import describe_aftermath
from approvals.web.components.decision_form import build_reading_panel
from approvals.web.pages.second_factors import read_ways_to_confirm
from runtime.core.values.enums import CallState, Verdict
from runtime.core.values.ids import parse_turn
from runtime.core.values.limits import MAX_MESSAGE, MAX_REASON
from runtime.core.values.verdicts import VERDICTS
from runtime.errors import RequestError
from runtime.keyring.sealing import REDACTED
from runtime.ports import wiring
from runtime.reads.labels import describe_effect
from runtime.reads.trace.calls import CallRecord
from runtime.reads.transcript import (
    CallContext,
    Transcript,
    build_call_context,
    read_reachable_transcript,
    read_unreceived,
)
from runtime.reads.version_diff import VersionDifference, list_differences
from runtime.web.forms import PageForm, TypedField
from runtime.web.requests import AUTHENTICATED, read_text

T = TypeVar("T")


def build_page_context(
    request: HttpRequest,
    approval: approval_views.ApprovalView,
    problem: RequestError | None = None,
) -> dict[str, Any]:
    """Build the context of a page; `problem` is the error of the decision just sent."""
    reader = approval.reader
    is_admin = reader is not None and reader.has(Scope.ADMIN)
    transcript = read_reachable_transcript(approval.run, provider_errors=is_admin)
    position = places.read_position(request)
    neighbours = (
        Neighbours()  # no part of an open page
        if _is_open(request)
        else places.find_neighbours(position, reader, approval)
    )
    status = _compute_status(approval)
    call = transcript.call(approval.frame, approval.call)
    sent = read_unreceived(approval.run)
    around = build_call_context(transcript, frame=approval.frame, call=approval.call)
    effective_at = approval.effective_at
    is_decider = reader is not None and approval.decided_by == reader.person
    root = transcript.roots[0] if transcript.roots else None
    values = (message.value for message in root.messages if message.kind == "input") if root else ()
    return {
        "before": neighbours.before,
        "next": neighbours.after,
        "past": neighbours.past,
        "list_query": position.query,
        "agent_texts": _list_agent_texts(transcript, approval),
        "section": "inbox",
        "approval": approval,
        "votes": (panel := deciders.find_panel(approval)),
        "could_decide": deciders.name_possible_deciders(approval),
        "too_few": (able := deciders.find_too_few_people(approval, panel)),
        "absent": () if able is None else absences.list_able_absentees(approval.id),
        **build_teamwork_context(request, approval),
        "status": status,
        "agent": _name_agent(approval),
        "outside": (outside := external_requests.read_claim(approval)),
        "arguments": list_arguments(approval.args, approval.schema)
        if outside is None
        else list_arguments(approval.args["arguments"], None),
        "effect": describe_effect(approval.effect)[1],
        "call_context": around,
        "strip": strip(around, call, _name_agent(approval)),
        "run_input": next((list_fields(value) for value in values), []),
        **_run_so_far(transcript, around),
        "open_calls": around.open,
        "call": call,
        "after": describe_aftermath(approval, status, call, reader),
        "transcript": transcript,
        "updates": list_updates(approval, transcript),
        "unshown": checks.describe_unreadable(transcript.unreadable),
        "stopped": sent.quarantined,
        "sent": sent,
        "undo_until": (
            effective_at
            if is_decider and effective_at and effective_at > clock.read_time()
            else None
        ),
        "reading": build_reading_panel(approval, request.user.get_username()),
        "problem": problem,
        "stale": isinstance(problem, DigestMismatch),
        "reason": read_text(request.POST, "reason"),
        **_step_up(request, approval),
        "max_reason": MAX_REASON,
        "max_message": MAX_MESSAGE,
    }


def render_request(request: HttpRequest, template: str, context: dict[str, Any]) -> HttpResponse:
    """Render the page; for a page that is already open, only the part that changes.

    After a decision beside the list, which names the panel as its target, the toast comes with it.
    """
    problem: RequestError | None = context["problem"]
    status = 200 if problem is None else problem.status
    again = _is_open(request)
    page = render(request, f"{template}#live" if again else template, context, status=status)
    if again and request.headers.get("HX-Target") == "panel":
        page.write(render_to_string("components/toasts.html", request=request))
    patch_vary_headers(page, ["HX-Request"])
    return page


def answer_already_closed(
    request: HttpRequest,
    approval: approval_views.ApprovalView,
    verdict: Verdict,
    exc: AlreadyClosed,
) -> HttpResponse:
    """Redirect a double click to the result of the first. Tell any other person who decided first."""
    mine = approval.decided_by == request.user.get_username()
    if mine and approval.status == VERDICTS[verdict].status:
        return to_page(request, approval.id)
    context = {
        "section": "inbox",
        "approval": approval,
        "status": _compute_status(approval),
        "verb": VERDICTS[verdict].verb,
        "reason": read_text(request.POST, "reason"),
        "result": read_text(request.POST, "result"),
    }
    return render(request, "approvals/conflict.html", context, status=exc.status)


def to_page(request: HttpRequest, approval: UUID) -> HttpResponse:
    """Redirect to the page of a request, in the same place of the inbox."""
    return redirect(f"{reverse('approval', args=[approval])}{places.read_position(request).query}")


MAX_STEPS: Final = 200  # calls, and messages, of a long run; its own page has all of them


def _run_so_far(transcript: Transcript, around: CallContext) -> dict[str, Any]:
    """Build the context: the calls and messages of the run, as many as a page can show."""
    on_path = {frame.id for frame in around.path}
    calls = [
        (call.frame in on_path, call)
        for call in around.settled  # the plan itself shows its own
        if not (call.keeps_plan and call.state is CallState.RETURNED)
    ]
    messages = [
        (frame.id in on_path, (frame, message))
        for frame in transcript.frames()
        for message in frame.messages
    ]
    by_frame = groupby(_nearest(messages), key=lambda pair: pair[0])
    return {
        "done_calls": [
            (
                call,
                list_fields(call.args),
                list_fields(call.result) if call.result is not None else [],
            )
            for call in _nearest(calls)
        ],
        "conversation": [(frame, [pair[1] for pair in pairs]) for frame, pairs in by_frame],
        "more_calls": max(0, len(calls) - MAX_STEPS),
        "more_messages": max(0, len(messages) - MAX_STEPS),
    }


def _nearest(steps: Sequence[tuple[bool, T]]) -> list[T]:
    """Return the last steps in their order; those of agents on the path to the call before those of others."""
    ranked = sorted(range(len(steps)), key=lambda index: (steps[index][0], index))
    return [steps[index][1] for index in sorted(ranked[-MAX_STEPS:])]


State = Literal["done", "failed", "now", "later"]

MAX_BEFORE: Final = 5  # steps that are shown on either side of this one
MAX_AFTER: Final = 4
_OF_PLAN: Final[dict[str, State]] = {"done": "done", "doing": "now"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StripStep:
    """One step: an item of a plan, or a tool, or the agent itself, with the `number` of its calls in a row."""

    state: State
    text: str = ""
    tool: str = ""
    number: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """The steps beside this one. `earlier` and `later` count those that are left out."""

    steps: tuple[StripStep, ...]
    earlier: int
    later: int


def strip(around: CallContext, call: CallRecord | None, agent: str) -> Strip:
    """Return the steps of the innermost plan that an agent keeps; the calls on the path if none keeps one.

    Without a call the agent itself is this step.
    """
    plan = next((frame.todo for frame in reversed(around.path) if frame.todo), ())
    if plan:
        steps = [
            StripStep(state=_OF_PLAN.get(item.state, "later"), text=item.text) for item in plan
        ]
    else:
        settled = (
            other for other in _select_calls_on_path(around.settled, around) if not other.keeps_plan
        )
        steps = list(
            _group_steps(
                ("done" if other.state is CallState.RETURNED else "failed", other.tool)
                for other in settled
            )
        )
        steps.append(StripStep(state="now", tool=call.tool if call else agent))
        steps += _group_steps(
            ("later", other.tool) for other in _select_calls_on_path(around.open, around)
        )
    is_past = [step.state in ("done", "failed") for step in steps]
    now = is_past.index(False) if False in is_past else len(steps)
    first, end = max(0, now - MAX_BEFORE), now + 1 + MAX_AFTER
    return Strip(steps=tuple(steps[first:end]), earlier=first, later=len(steps[end:]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """A newer version of an agent. `asks` says that its run stops at a version gate before it continues."""

    agent: str
    published_at: datetime
    differences: tuple[VersionDifference, ...]

    @property
    def asks(self) -> bool:
        """Whether a change needs a person."""
        return any(difference.asks for difference in self.differences)


def list_updates(approval: ApprovalView, transcript: Transcript) -> tuple[Update, ...]:
    """Return the newer versions of the agent that asked and of those above it, by the published definitions.

    Only a pending request of a call has any: a version gate shows its changes itself.
    """
    if approval.status != "pending" or not approval.call:
        return ()
    frames = {frame.id: frame for frame in transcript.frames()}
    used, at = dict[str, str](), frames.get(approval.frame)
    while at is not None:
        used.setdefault(at.agent, at.fingerprint)
        at = frames.get(at.parent or "")
    return tuple(
        Update(
            agent=change.agent,
            published_at=change.published_at,
            differences=list_differences(change.changes),
        )
        for change in wiring.resolve_catalogue().list_updates(used)
    )


class ExtensionForm(PageForm):
    """A new deadline in the reader's time zone, by default a day after the present one, and why it moves."""

    until = TypedField("New deadline", "datetime-local", required=True)
    reason = TypedField("Reason", "long", maximum=MAX_REASON, rows=2, required=True)

    def __init__(self, approval: approval_views.ApprovalView, data: Any = None) -> None:
        later = timezone.localtime(approval.expires_at) + timedelta(days=1)
        super().__init__(data, initial={"until": f"{later:%Y-%m-%dT%H:%M}"}, ids="extend-")
        latest = timezone.localtime() + timedelta(days=MAX_DAYS)
        self.fields["until"].help_text = (
            f"Later than the present one, and at most {MAX_DAYS} days from now: until"
            f" {latest:%Y-%m-%d %H:%M %Z}."
        )


def build_teamwork_context(
    request: HttpRequest, approval: approval_views.ApprovalView
) -> dict[str, Any]:
    """Read who else is concerned with the request, for its page."""
    reader = request.user.get_username()
    return {
        "teamwork": marks.read_teamwork(approval.id, reader),
        "reader": reader,
        "max_comment": teamwork.MAX_COMMENT,
        "extension": ExtensionForm(approval) if approval.may_extend else None,
    }


def _step_up(request: HttpRequest, approval: approval_views.ApprovalView) -> dict[str, Any]:
    """Build the context of the form that asks a person who may decide for a fresh second factor."""
    demands, proof = approval.demands, request.session.get(AUTHENTICATED)
    if demands is None or not demands.step_up:
        return {}
    if not approval.is_pending or approval.denial is not None:
        return {}
    if demands.accept(proof, clock.read_time()):
        return {}
    return {"step_up": True, **read_ways_to_confirm(request)}


def _is_open(request: HttpRequest) -> bool:
    """Tell whether the browser shows the page already, or shows the request beside the list."""
    return request.method == "GET" and "HX-Request" in request.headers


def _name_agent(approval: approval_views.ApprovalView) -> str:
    """Name the agent that made the call or is blocked."""
    agents = approval.path[:-1] if approval.call else approval.path
    return agents[-1] if agents else "The agent"


def _list_agent_texts(transcript: Transcript, approval: approval_views.ApprovalView) -> list[Any]:
    """Return the agent's text in the model reply with this call, unless it is sealed."""
    if not approval.call or approval.tampered:
        return []
    turn = parse_turn(approval.call)
    frame = next((frame for frame in transcript.frames() if frame.id == approval.frame), None)
    messages = frame.messages if frame else ()
    texts = [
        message.value for message in messages if message.kind == "text" and message.turn == turn
    ]
    return [text for text in texts if str(text).strip('"') != REDACTED]


def _compute_status(approval: approval_views.ApprovalView) -> str:
    """Return the status; `expired` from the deadline on, even if the expiry is not stored yet."""
    is_late = approval.expires_at is not None and approval.expires_at <= clock.read_time()
    return "expired" if approval.is_pending and is_late else approval.stored.status


def _select_calls_on_path(calls: Iterable[CallRecord], around: CallContext) -> Iterable[CallRecord]:
    """Return the calls of the agents on the path: other agents have steps of their own."""
    frames = {frame.id for frame in around.path}
    return (call for call in calls if call.frame in frames)


def _group_steps(steps: Iterable[tuple[State, str]]) -> Iterable[StripStep]:
    """Make one step of alike ones in a row."""
    for (state, tool), row in groupby(steps):
        yield StripStep(state=state, tool=tool, number=len(list(row)))
