"""The pages about recorded runs: two side by side, one replayed by a worker with today's code, and one forked.

Pages of other jobs share what lists them and shows the one of the address.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from runtime.control import jobs
from runtime.control.forks import fork as fork_run
from runtime.control.user_actions import require_readable_run
from runtime.core.values.limits import MAX_MESSAGE
from runtime.errors import InvalidInput, RequestError
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.reads import comparison, fork_preview
from runtime.reads.fork_preview import ChangeableValue
from runtime.reads.run_rows import RunDetail
from runtime.reads.version_diff import list_differences
from runtime.store.tables.jobs import JobRow
from runtime.web.pages.run_actions import Context, Refusal, answer_form
from runtime.web.requests import admins, read_actor, read_number, read_text, render_live, users


@users.guard_page
def compare(request: HttpRequest, run: UUID, other: UUID) -> HttpResponse:
    """Compare two runs. A person who may not read both gets 404."""
    actor = read_actor(request)
    context = {
        "section": "runs",
        "comparison": comparison.compare(
            require_readable_run(run, actor), require_readable_run(other, actor)
        ),
        "is_admin": wiring.resolve_access().may_read_continuations(actor),
    }
    return render(request, "runs/comparison.html", context)


@admins.form
def replay(request: HttpRequest, run: UUID) -> HttpResponse:
    """Show the chosen or last replay of a run, or have a worker replay it.

    For a page that is already open, only the part that changes.
    """
    actor = read_actor(request)
    require_readable_run(run, actor)
    if request.method != "POST":
        return _render_replay(request, run, actor)
    try:
        jobs.replay_run(run=run, actor=actor)
    except RequestError as refused:
        return _render_replay(request, run, actor, refused)
    return redirect("replay", run=run)


def _render_replay(
    request: HttpRequest, run: UUID, actor: Actor, refused: RequestError | None = None
) -> HttpResponse:
    newest = jobs.list_replays(run=run, actor=actor)
    job = find_requested_job(request, "replay", newest)
    row = jobs.find_replay(run=run, replay=job.id, actor=actor) if job else None
    changed = []
    versions = row.comparison.get("versions", {}) if row else {}
    for agent, (recorded, today) in sorted(versions.items()):
        if recorded != today:  # without differences if a version is not known here
            changes = wiring.resolve_catalogue().list_changes(agent, recorded, today)
            changed.append((agent, None if changes is None else list_differences(changes)))
    context = {
        "section": "runs",
        "run": require_readable_run(run, actor),
        "job": row,
        "comparison": row.comparison if row else None,
        "changed": changed,
        "refused": refused,
        **list_context(row, newest),
    }
    return render_live(request, "runs/replay.html", context, refused.status if refused else 200)


R = TypeVar("R", bound=JobRow)


def find_requested_job(request: HttpRequest, parameter: str, newest: Sequence[R]) -> R | None:
    """Return the job named in the URL, or the latest one; None if there is none. Raise Http404 if it is not listed."""
    job_id = request.GET.get(parameter)
    if job_id is None:
        return newest[0] if newest else None
    for row in newest:
        if str(row.id) == job_id:
            return row
    raise Http404


def list_context(job: JobRow | None, newest: Sequence[JobRow]) -> dict[str, Any]:
    """Return what a page says of the jobs besides this one."""
    return {
        "other_jobs": [row for row in newest if job and row.id != job.id],
        "is_last": job is not None and job.id == newest[0].id,
        "is_open": bool(newest) and newest[0].ended_at is None,
    }


@users.guard_page
def redirect_to_newest(request: HttpRequest, run: UUID) -> HttpResponse:
    """Redirect to the form for the newest entry that can be forked."""
    detail = require_readable_run(run, read_actor(request))
    return redirect(
        "fork", run=run, position=fork_preview.find_last_quiescent(run) or detail.position
    )


@users.form
def fork(request: HttpRequest, run: UUID, position: int) -> HttpResponse:
    """Show the consequences of a fork from this entry and the form; fork the run on POST."""
    return answer_form(
        request,
        run,
        "runs/fork.html",
        act=lambda actor: fork_run(
            run=run, position=position, actor=actor, change=read_change(request.POST)
        ),
        context=partial(_fork_context, position, request.POST),
    )


def _fork_context(
    position: int,
    form_values: Mapping[str, str],
    actor: Actor,
    detail: RunDetail,
    refusal: Refusal | None,
) -> Context:
    # Positions are eight-byte integers; larger numbers name no entry.
    view = fork_preview.preview(detail.id, position) if position <= detail.position else None
    if view is None:
        raise Http404
    return {
        "fork": view,
        "may_fork": wiring.resolve_access().may_fork(actor, detail.requester),
        "changes": build_change_fields(view.changes, form_values, refusal),
        "max_message": MAX_MESSAGE,
        "is_admin": wiring.resolve_access().may_read_continuations(actor),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeField:
    """The form of one value: its text, and the error of the value that was sent, None for none.

    `calls` are those of a reply as JSON.
    """

    id: str
    of: ChangeableValue
    text: str
    calls: str
    error: InvalidInput | None


def read_change(form_values: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the change in a form, None if it has none. Raise InvalidInput for a value that is not JSON."""
    kind, text = form_values.get("kind", ""), read_text(form_values, "value")
    if not kind:
        return None
    if kind == "message":
        number = read_number(form_values.get("number", ""), digits=4) or 0
        return {"kind": kind, "number": number, "value": text}
    if kind == "reply":
        calls = _read_json(read_text(form_values, "calls").strip() or "[]", "change.value.calls")
        value: Any = {"text": text, "calls": calls}
        return {"kind": kind, "frame": form_values.get("frame", ""), "value": value}
    return {
        "kind": kind,
        "frame": form_values.get("frame", ""),
        "call": form_values.get("call", ""),
        "value": _read_json(text, "change.value"),
    }


def _read_json(text: str, field: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as exc:
        line = f" (line {exc.lineno})" if isinstance(exc, json.JSONDecodeError) else ""
        raise InvalidInput(field, f"is not JSON{line}") from exc


def build_change_fields(
    values: Iterable[ChangeableValue], form_values: Mapping[str, str], refusal: Refusal | None
) -> list[ChangeField]:
    """Return a form for each value; that of a refused change has the text and the error."""
    fields = []
    for value in values:
        name = f"{value.change.kind}-{value.change.frame}-{value.change.call}-{value.change.number}"
        sent = form_values.get("field") == name
        error = refusal if sent and isinstance(refusal, InvalidInput) else None
        text = calls = ""
        if sent:
            text, calls = read_text(form_values, "value"), read_text(form_values, "calls")
        elif value.change.kind == "message":
            text = str(value.value)
        elif value.change.kind == "reply":
            text = str(value.value["text"])
            calls = _to_json(value.value["calls"]) if value.value["calls"] else ""
        elif not value.stored:
            text = _to_json(value.value)
        fields.append(ChangeField(id=name, of=value, text=text, calls=calls, error=error))
    return fields


def _to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)
