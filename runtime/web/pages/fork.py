"""The page for forking a run from an entry of its journal: the consequences, and the form."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods, require_safe

from runtime.control.access import readable
from runtime.control.forks import fork as fork_run
from runtime.core.values.limits import MAX_MESSAGE
from runtime.errors import InvalidInput
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.reads import fork_preview
from runtime.reads.fork_preview import ChangeableValue
from runtime.reads.runs import RunDetail
from runtime.web.pages.run_actions import Context, Refusal, answer
from runtime.web.requests import actor_of, form_text


@require_safe
@login_required
def newest(request: HttpRequest, run: UUID) -> HttpResponse:
    """Redirect to the form for the newest entry that can be forked."""
    detail = readable(run, actor_of(request))
    return redirect("fork", run=run, position=fork_preview.last_quiescent(run) or detail.position)


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def fork(request: HttpRequest, run: UUID, position: int) -> HttpResponse:
    """Show the consequences of a fork from this entry and the form; fork the run on POST."""
    return answer(
        request,
        run,
        "runs/fork.html",
        act=lambda actor: fork_run(
            run=run, position=position, actor=actor, change=change_of(request.POST)
        ),
        context=partial(_context, position, request.POST),
    )


def _context(
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
        "may_fork": wiring.access().may_fork(actor, detail.requester),
        "changes": fields_of(view.changes, form_values, refusal),
        "max_message": MAX_MESSAGE,
        "is_admin": wiring.access().reads_continuations(actor),
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


def change_of(form_values: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the change in a form, None if it has none. Raise InvalidInput for a value that is not JSON."""
    kind, text = form_values.get("kind", ""), form_text(form_values, "value")
    if not kind:
        return None
    if kind == "message":
        number = form_values.get("number", "")
        position: Any = (
            int(number) if number.isascii() and number.isdigit() and len(number) < 5 else 0
        )
        return {"kind": kind, "number": position, "value": text}
    if kind == "reply":
        calls = _json(form_text(form_values, "calls").strip() or "[]", "change.value.calls")
        return {
            "kind": kind,
            "frame": form_values.get("frame", ""),
            "value": {"text": text, "calls": calls},
        }
    value = _json(text, "change.value")
    return {
        "kind": kind,
        "frame": form_values.get("frame", ""),
        "call": form_values.get("call", ""),
        "value": value,
    }


def _json(text: str, field: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as exc:
        line = f" (line {exc.lineno})" if isinstance(exc, json.JSONDecodeError) else ""
        raise InvalidInput(field, f"is not JSON{line}") from exc


def fields_of(
    values: Iterable[ChangeableValue], form_values: Mapping[str, str], refusal: Refusal | None
) -> list[ChangeField]:
    """Return a form for each value; that of a refused change has the text and the error."""
    fields = []
    for value in values:
        name = f"{value.change.kind}-{value.change.frame}-{value.change.call}-{value.change.number}"
        sent = form_values.get("field") == name
        error = refusal if sent and isinstance(refusal, InvalidInput) else None
        text = form_text(form_values, "value") if sent else _text(value)
        calls = form_text(form_values, "calls") if sent else _calls(value)
        fields.append(ChangeField(id=name, of=value, text=text, calls=calls, error=error))
    return fields


def _text(value: ChangeableValue) -> str:
    if value.stored:
        return ""
    if value.change.kind == "message":
        return str(value.value)
    if value.change.kind == "reply":
        return str(value.value["text"])
    return json.dumps(value.value, ensure_ascii=False, indent=2)


def _calls(value: ChangeableValue) -> str:
    if value.change.kind != "reply" or not value.value["calls"]:
        return ""
    return json.dumps(value.value["calls"], ensure_ascii=False, indent=2)
