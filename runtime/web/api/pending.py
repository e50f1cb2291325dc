"""What a run waits for, in answers of the API: gates, external events, and rate limits."""

from datetime import datetime
from typing import Any
from uuid import UUID

from ninja import Schema


class GateOut(Schema):
    """A gate whose decision is not applied yet; `approval` is the id of its approval request."""

    id: UUID
    kind: str
    state: str
    frame: str
    call: str
    tool: str
    path: list[str]
    opened_at: datetime
    approval: UUID | None


class WaitOut(Schema):
    """A call that waits for an event whose data contains `match`, until `until` at the latest."""

    frame: str
    call: str
    event: str
    match: Any
    until: datetime


class RateLimitOut(Schema):
    """A model call that the rate limit of its provider puts off: until when, and how often since `since`."""

    frame: str
    agent: str
    model: str
    until: datetime
    since: datetime
    tries: int
