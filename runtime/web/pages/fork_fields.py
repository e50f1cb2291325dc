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
    """The form of one value: its text, and the error of the value that was sent, None for none."""

    id: str
    of: ChangeableValue
    text: str
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
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as exc:
        where = f" (line {exc.lineno})" if isinstance(exc, json.JSONDecodeError) else ""
        raise InvalidInput("change.value", f"is not JSON{where}") from exc
    return {
        "kind": kind,
        "frame": posted.get("frame", ""),
        "call": posted.get("call", ""),
        "value": value,
    }


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
        fields.append(ChangeField(id=name, of=one, text=text, error=error))
    return fields


def _text(one: ChangeableValue) -> str:
    if one.stored:
        return ""
    if one.change.kind == "message":
        return str(one.value)
    return json.dumps(one.value, ensure_ascii=False, indent=2)
