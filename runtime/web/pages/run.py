"""The page of one run with its tabs, and the page of its state at an entry."""

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.cache import patch_vary_headers

from runtime.control.user_actions import require_readable_run
from runtime.core.run.continuation import RunStatus
from runtime.core.values.json_values import decode_file
from runtime.core.values.limits import MAX_MESSAGE
from runtime.errors import KeyMissing, Tampered
from runtime.ports import wiring
from runtime.reads import (
    agent_picture,
    entries,
    journal,
    outcomes,
    run_page,
    run_rows,
    suspects,
    threads,
    timeline,
    workers,
)
from runtime.reads.filters import MAX_SEARCH
from runtime.triggers import listing
from runtime.web import requests
from runtime.web.requests import admins, is_htmx, read_actor, users

MESSAGES = 200  # on one page
PANE = "step"  # the element that a step opens in
WHOLE = "whole"  # asks for the whole page at once


@users.guard_page
def run(request: HttpRequest, run: UUID) -> HttpResponse:
    """Show a run: its status, its open gates and waits, and the steps of its agents."""
    actor, access = read_actor(request), wiring.resolve_access()
    detail, problem = with_archive(require_readable_run(run, actor))
    is_whole = is_htmx(request) or WHOLE in request.GET
    if detail.position > run_page.LONG and not is_whole:  # its steps are read after it has opened
        parameters = urlencode({**request.GET.dict(), WHOLE: "1"})
        context = {"section": "runs", "run": detail, "whole": parameters}
        return _vary_by_htmx(render(request, "runs/long.html", context))
    is_admin = access.may_read_continuations(actor)
    with run_page.open_history(detail, provider_errors=is_admin) as history:
        if _is_partial(request) and request.headers.get("HX-Target") == PANE:
            # A step opens or closes beside the map, which stays at its page as it is.
            context = {
                "run": detail,
                **_read_step(request, history),
                "keep": _encode_query(_build_choice_parameters(*_read_row_choice(request))),
                "number": requests.read_page_number(request),
            }
            return _vary_by_htmx(render(request, "runs/run.html#pane", context))
        context = _build_context(request, detail, problem, history, is_admin=is_admin)
        template = "runs/run.html#live" if _is_partial(request) else "runs/run.html"
        return _vary_by_htmx(render(request, template, context))


@admins.guard_page
def show_state_at(request: HttpRequest, run: UUID, position: int) -> HttpResponse:
    """Show the continuation after an entry of the journal, for admins."""
    actor = read_actor(request)
    detail = require_readable_run(run, actor)
    # Positions are eight-byte integers; larger numbers name no entry.
    past = entries.read_state_after(run, position) if position <= detail.position else None
    if past is None:
        raise Http404
    context = {
        "section": "runs",
        "run": detail,
        "past": past,
        "may_fork": detail.archived_at is None
        and wiring.resolve_access().may_fork(actor, detail.requester),
    }
    return render(request, "runs/state_at.html", context)


def _build_context(
    request: HttpRequest,
    detail: run_rows.RunDetail,
    problem: str,
    history: run_page.RunHistory,
    *,
    is_admin: bool,
) -> dict[str, Any]:
    actor, access = read_actor(request), wiring.resolve_access()
    tabs = ("timeline", "transcript", "state") if is_admin else ("timeline", "transcript")
    tab = requests.read_choice(request, "tab", tabs) or "timeline"
    pending = run_rows.read_pending_requests(detail.id)
    may_control = (
        not detail.ended
        and detail.status != RunStatus.QUARANTINED
        and history.transcript.ending is None
        and not pending.cancel
        and access.may_control(actor, detail.requester)
    )
    is_paused = history.transcript.pause is not None
    return {
        "section": "runs",
        "run": detail,
        "tab": tab,
        "tabs": tabs,
        "history": history,
        "picture": agent_picture.draw(
            detail.agent,
            wiring.resolve_catalogue().read_family(detail.agent),
            tuple(history.transcript.frames()),
        ),
        "timeline": history.timeline,
        "transcript": history.transcript,
        "without_worker": workers.find_agents_without_worker(detail, history.transcript),
        "crashes": suspects.list_crashes(detail.id),
        "late": outcomes.list_late_outcomes_of_run(detail.id, history.transcript),
        "budget_usage": history.usage,
        "starter": listing.find_starter_of_run(detail.id, actor),
        "memory": threads.read_memory_texts(history.memory),
        "is_admin": is_admin,
        "archive_problem": problem,
        "archive_file": run_rows.find_archive_key(detail.id)
        if detail.archived_at and is_admin
        else None,
        "cancel_requested": pending.cancel and not detail.ended,
        "may_fork": detail.archived_at is None and access.may_fork(actor, detail.requester),
        "may_retry": detail.status == RunStatus.FAILED
        and detail.archived_at is None
        and access.may_control(actor, detail.requester),
        "may_cancel": not detail.ended and access.may_cancel(actor, detail.requester),
        "pause_requested": pending.pause,
        "is_paused": is_paused if pending.pause is None else pending.pause,
        "may_pause": may_control,
        "may_write": may_control,
        "max_message": MAX_MESSAGE,
        **_read_tab(request, tab, history),
    }


def _is_partial(request: HttpRequest) -> bool:
    return is_htmx(request) and WHOLE not in request.GET


def _vary_by_htmx(response: HttpResponse) -> HttpResponse:
    patch_vary_headers(response, ["HX-Request", "HX-Target"])
    return response


def with_archive(detail: run_rows.RunDetail) -> tuple[run_rows.RunDetail, str]:
    """Return an archived run with its payloads, and why its file cannot be shown, empty if it can."""
    try:
        return run_rows.with_archive(detail), ""
    except (Tampered, KeyMissing) as exc:
        return detail, str(exc)


def _read_tab(request: HttpRequest, tab: str, history: run_page.RunHistory) -> dict[str, Any]:
    """Return the rows or messages of this tab and page, and the opened step."""
    if tab == "state":
        return {"gates": history.timeline.gates}
    if tab == "transcript":
        return _select_page(
            request, history.transcript.list_messages(), {"tab": tab}, size=MESSAGES
        )
    step_context = _read_step(request, history)
    choice, text = _read_row_choice(request)
    steps = history.steps
    indexes = steps.select_rows(timeline.RowFilter(choice) if choice else None, text)
    step = request.GET.get("step", "")
    places = [n for n, index in enumerate(indexes) if step and steps.spans[index].step == step]
    at = places[-1] // timeline.ROWS + 1 if places else None  # the page with its last row
    piece = _select_page(
        request, indexes, _build_choice_parameters(choice, text), size=timeline.ROWS, at=at
    )
    return {
        **piece,
        "rows": steps.rows(piece["items"]),
        "only": choice,
        "q": text,
        "most": MAX_SEARCH,
        "filters": [(name.value, steps.count(name)) for name in timeline.RowFilter],
        **step_context,
    }


def _read_step(request: HttpRequest, history: run_page.RunHistory) -> dict[str, Any]:
    step = request.GET.get("step", "")
    step_view = history.step(step) if step else None
    if step and step_view is None:
        raise Http404
    return {"opened": step_view, "open_row": step_view.rows[-1].id if step_view else ""}


def _read_row_choice(request: HttpRequest) -> tuple[str, str]:
    choice = requests.read_choice(request, "only", tuple(timeline.RowFilter))
    return choice, request.GET.get("q", "").strip()[:MAX_SEARCH]


def _build_choice_parameters(choice: str, text: str) -> dict[str, str]:
    return {name: value for name, value in (("only", choice), ("q", text)) if value}


def _encode_query(keep: dict[str, str]) -> str:
    return f"{urlencode(keep)}&" if keep else ""


def _select_page(
    request: HttpRequest,
    items: Sequence[Any],
    keep: dict[str, str],
    *,
    size: int,
    at: int | None = None,
) -> dict[str, Any]:
    number = requests.read_page_number(request) if at is None or "page" in request.GET else at
    last = max(1, -(-len(items) // size))
    if number > last:
        raise Http404
    first = (number - 1) * size
    page_items = items[first : first + size]
    return {
        "items": page_items,
        "first": first + 1,
        "last": first + len(page_items),
        "total": len(items),
        "number": number,
        "before": number - 1,
        "after": number + 1 if number < last else 0,
        "keep": _encode_query(keep),
    }


@users.guard_page
def send_file(request: HttpRequest, digest: str) -> HttpResponse:
    """Send a picture or a PDF to people who may read a run that refers to it. A PDF is not opened in the browser."""
    content = journal.find_blob(
        wiring.resolve_access().select_readable_runs(read_actor(request)), digest
    )
    stored = None if content is None else decode_file(content[0])
    if stored is None:
        raise Http404
    name = f"{digest.removeprefix('sha256:')[:12]}.{stored.suffix}"
    disposition = "inline" if stored.is_picture else "attachment"
    return HttpResponse(
        stored.data,
        content_type=stored.media_type,
        headers={
            "Content-Disposition": f'{disposition}; filename="{name}"',
            "Content-Security-Policy": "default-src 'none'; sandbox",
            "X-Content-Type-Options": "nosniff",
        },
    )


@users.guard_page
def send_blob(request: HttpRequest, digest: str) -> HttpResponse:
    """Send JSON with secrets redacted, to people who may read a run that refers to it."""
    content = journal.find_blob(
        wiring.resolve_access().select_readable_runs(read_actor(request)), digest
    )
    if content is None:
        raise Http404
    text = json.dumps(content[0], indent=2, ensure_ascii=False)
    name = f"result-{digest.removeprefix('sha256:')[:12]}.json"
    return HttpResponse(
        text,
        content_type="application/json",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )
