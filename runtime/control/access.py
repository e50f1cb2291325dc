"""Checks for user actions: who may read a run, who may control it, and whether a text can be stored."""

from uuid import UUID

from runtime.core.values.errors import NotJson
from runtime.core.values.json_values import require_json
from runtime.errors import Forbidden, InvalidInput, NoSuchRun
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.reads import runs
from runtime.reads.runs import RunDetail


def readable(run: UUID, actor: Actor) -> RunDetail:
    """Return a run as the actor may read it. Raise NoSuchRun."""
    detail = runs.run_detail(wiring.access().readable_runs(actor), run)
    if detail is None:
        raise NoSuchRun
    return detail


def readable_whole(run: UUID, actor: Actor) -> RunDetail:
    """Return a run that the actor may read completely, with its continuations.

    Raise, in this order: Forbidden (`scope`); NoSuchRun; Forbidden (`not_eligible`).
    """
    wiring.access().require(actor, "runs:read")
    return for_admins(run, actor, "Continuations are for admins.")


def for_admins(run: UUID, actor: Actor, refusal: str) -> RunDetail:
    """Return a run that the actor may read completely. Raise NoSuchRun, then Forbidden with this `refusal`."""
    detail = readable(run, actor)
    if not wiring.access().reads_continuations(actor):
        raise Forbidden("not_eligible", refusal)
    return detail


def controllable(run: UUID, actor: Actor, verb: str) -> RunDetail:
    """Return a run that the actor may control. Raise NoSuchRun, then Forbidden, which says `verb`."""
    detail = readable(run, actor)
    if not wiring.access().may_control(actor, detail.requester):
        raise Forbidden(
            "not_eligible", f"{actor.person} may not {verb} runs of {detail.requester}."
        )
    return detail


def validate_text(field: str, value: object, longest: int, *, required: str = "") -> str:
    """Return the text unchanged, because the audit records it verbatim. Raise InvalidInput.

    `required` is the error for a blank text; without it a blank text is valid.
    """
    if not isinstance(value, str):
        raise InvalidInput(field, "must be text")
    if required and not value.strip():
        raise InvalidInput(field, required)
    if len(value) > longest:
        raise InvalidInput(field, f"must have at most {longest} characters")
    try:
        require_json(value)
    except NotJson as exc:
        raise InvalidInput(field, "contains a character that is not text") from exc
    return value
