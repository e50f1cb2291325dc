"""Reads the form with which a person changes a value in a fork, and fills it in again after an error."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from runtime.errors import InvalidInput
from runtime.queries.history.fork_preview import ChangeableValue
from runtime.web.pages.action_form import Refusal
from runtime.web.requests import form_text


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


def change_of(posted: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the change in a form, None if it has none. Raise InvalidInput for a value that is not JSON."""
    kind, text = posted.get("kind", ""), form_text(posted, "value")
    if not kind:
        return None
    if kind == "message":
        number = posted.get("number", "")
        place: Any = int(number) if number.isascii() and number.isdigit() and len(number) < 5 else 0
        return {"kind": kind, "number": place, "value": text}
    if kind == "reply":
        calls = _json(form_text(posted, "calls").strip() or "[]", "change.value.calls")
        return {
            "kind": kind,
            "frame": posted.get("frame", ""),
            "value": {"text": text, "calls": calls},
        }
    value = _json(text, "change.value")
    return {
        "kind": kind,
        "frame": posted.get("frame", ""),
        "call": posted.get("call", ""),
        "value": value,
    }


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as exc:
        line = f" (line {exc.lineno})" if isinstance(exc, json.JSONDecodeError) else ""
        raise InvalidInput(where, f"is not JSON{line}") from exc


def fields_of(
    found: Iterable[ChangeableValue], posted: Mapping[str, str], refusal: Refusal | None
) -> list[ChangeField]:
    """Return a form for each value; that of a refused change has the text and the error."""
    fields = []
    for one in found:
        name = f"{one.change.kind}-{one.change.frame}-{one.change.call}-{one.change.number}"
        sent = posted.get("field") == name
        error = refusal if sent and isinstance(refusal, InvalidInput) else None
        text = form_text(posted, "value") if sent else _text(one)
        calls = form_text(posted, "calls") if sent else _calls(one)
        fields.append(ChangeField(id=name, of=one, text=text, calls=calls, error=error))
    return fields


def _text(one: ChangeableValue) -> str:
    if one.stored:
        return ""
    if one.change.kind == "message":
        return str(one.value)
    if one.change.kind == "reply":
        return str(one.value["text"])
    return json.dumps(one.value, ensure_ascii=False, indent=2)


def _calls(one: ChangeableValue) -> str:
    if one.change.kind != "reply" or not one.value["calls"]:
        return ""
    return json.dumps(one.value["calls"], ensure_ascii=False, indent=2)
