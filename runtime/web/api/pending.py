"""What a run waits for, in answers of the API: gates, external events, and rate limits."""

from ninja import Schema

from runtime.core.machine.rate_limits import RateLimitWait
from runtime.queries.runs import GateView, WaitView
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
