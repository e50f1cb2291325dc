"""Parts of a run in answers of the API: its waits, and late outcomes of its calls."""

from datetime import datetime
from typing import Any, Literal

from ninja import Schema

from runtime.core.run.retries import RateLimitWait
from runtime.reads.outcomes import LateView
from runtime.reads.runs import GateView, WaitView
from runtime.web.schemas import fields_of


@fields_of(GateView, "id kind state frame call tool path opened_at approval")
class GateOut(Schema):
    """A gate whose decision is not applied yet; `approval` is the id of its approval request."""


@fields_of(WaitView)
class WaitOut(Schema):
    """A call that waits for an event whose data contains `match`, until `until` at the latest."""


@fields_of(RateLimitWait)
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
    def from_view(late: LateView) -> "LateOut":
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
