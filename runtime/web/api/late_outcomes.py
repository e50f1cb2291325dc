"""What the API says of outcomes that came after their worker had lost the run."""

from datetime import datetime
from typing import Any, Literal

from ninja import Schema

from runtime.queries.late_outcomes import LateView


class LateOut(Schema):
    """What an attempt at a call ended with, handed in by its worker after that had lost the run.

    `outcome` is `returned`, with the `result`, or `failed`, with the `error`. `decided_by` is the person who had said
    what became of that attempt, `contradicts` whether they had said something else, `note` what came of it in words.
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
            note=f"{late.by} {late.words}" if late.by else late.words,
        )
