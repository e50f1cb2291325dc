"""The API operation on usage: what runs cost, by agent, model, person or day."""

from typing import Annotated

from ninja import Field, Query, Router, Schema

from runtime.ports import wiring
from runtime.reads import run_figures
from runtime.reads.run_figures import NamedUsage, UsageKey
from runtime.web.pages.query_params import read_period
from runtime.web.requests import Authenticated
from runtime.web.schemas import fields_of

router = Router(tags=["usage"])


@fields_of(NamedUsage, "name replies unpriced input_tokens output_tokens")
class UsageOut(Schema):
    """The usage of one agent (with its sub-agents), model, person or day. `unpriced` replies are not in the cost."""

    cost_usd: str = Field(validation_alias="cost")


class UsageListOut(Schema):
    """The usage of a period, the costliest first; days are in order."""

    items: list[UsageOut]


@router.get("/usage", response=UsageListOut, summary="Add up what runs used")
def read_usage(
    request: Authenticated,
    by: UsageKey = UsageKey.AGENT,
    since: Annotated[str, Query(description="first day (UTC), such as 2026-11-24")] = "",
    until: Annotated[str, Query(description="last day (UTC)")] = "",
) -> dict[str, tuple[NamedUsage, ...]]:
    """Add up replies, tokens and cost from day to day; without days the last seven. For admins.

    The sweeper counts every minute.
    """
    wiring.access().require(request.auth, "admin")
    return {"items": run_figures.read_usage(by, *read_period(since, until, ("since", "until")))}
