"""The late outcomes of calls in the API: results that arrived after their worker had lost the run."""

from datetime import datetime
from typing import Any, Literal

from ninja import Schema

from runtime.queries.late_outcomes import LateView


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
    def shown(late: LateView) -> "LateOut":
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
