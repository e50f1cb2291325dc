"""Results of tools: JSON by their annotation, or a failure after the call has happened."""

import asyncio
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from agents.errors import DefinitionError
from agents.sdk import ToolContext, tool
from agents.sdk.scripts import call, say
from agents.sdk.spec import ToolSpec
from agents.testing import drive
from runtime.ports.effects import ToolFailure, ToolResult, Unknown
from tests.support.specs import spec_of

MOMENT = datetime(2030, 1, 2, 3, 4, tzinfo=UTC)


class Size(StrEnum):
    SMALL = "small"


class Parcel(BaseModel):
    number: str
    sent: datetime
    price: Decimal
    size: Size = Size.SMALL
    carrier: str = Field(default="post", serialization_alias="by")


class Loose(TypedDict):
    known: str


class Input(BaseModel):
    name: str = "x"


def outcome_of(spec: ToolSpec, business_key: str | None = None) -> Any:
    """Return the outcome of one call of the tool, as the engine receives it."""
    replies = [call(spec.name), say("Done.")]
    desk = spec_of("desk", input=Input, tools=[spec])
    return drive(desk, {}, model=replies, business_key=business_key).calls[0].outcome


def test_models_moments_and_the_like_become_json() -> None:
    @tool(effect="read")
    def parcels() -> dict[str, tuple[Parcel, ...]]:
        """Looks."""
        return {"A": (Parcel(number="A-1", sent=MOMENT, price=Decimal("1.50")),)}

    parcel = {"number": "A-1", "sent": "2030-01-02T03:04:00Z", "price": "1.50"}
    parcel |= {"size": "small", "by": "post"}
    assert outcome_of(parcels) == ToolResult(value={"A": [parcel]})
    assert parcels.result_schema is not None
    assert "by" in parcels.result_schema["$defs"]["Parcel"]["properties"]


def test_json_stays_as_it_is_with_all_its_keys() -> None:
    @tool(effect="read")
    def look() -> Loose:
        """Looks."""
        return {"known": "x", "more": 1}  # type: ignore[typeddict-unknown-key]

    assert outcome_of(look) == ToolResult(value={"known": "x", "more": 1})


def test_a_result_of_another_type_is_a_failure_with_its_place() -> None:
    @tool(effect="read")
    def look() -> dict[str, int]:
        """Looks."""
        return {"a": 1, "b": "2"}  # type: ignore[dict-item]

    outcome = outcome_of(look)
    assert isinstance(outcome, ToolFailure)
    assert not outcome.retryable
    assert outcome.error == (
        "look ran, but its result is not of its type: result.b: Input should be a valid integer"
    )


def test_a_write_with_a_wrong_result_has_happened() -> None:
    @tool()
    def act() -> int:
        """Acts."""
        return "done"  # type: ignore[return-value]

    outcome = outcome_of(act)
    assert isinstance(outcome, ToolResult)
    assert "act ran, but its result is not of its type" in str(outcome.value)


def test_a_secret_result_of_another_type_is_not_quoted() -> None:
    @tool(effect="read", secret_result=True)
    def look() -> dict[str, int]:
        """Looks."""
        return {"hunter2": "x"}  # type: ignore[dict-item]

    outcome = outcome_of(look)
    assert isinstance(outcome, ToolFailure)
    assert outcome.error == "look ran, but its result is not of its type"


def test_a_tool_may_be_async() -> None:
    @tool(effect="read")
    async def look() -> datetime:
        """Looks."""
        await asyncio.sleep(0)
        return MOMENT

    assert outcome_of(look) == ToolResult(value="2030-01-02T03:04:00Z")


def test_an_async_tool_is_cancelled_at_its_deadline() -> None:
    ended = []

    @tool(deadline=0.05)
    async def act() -> None:
        """Acts."""
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    desk = spec_of("desk", input=Input, tools=[act])
    run = drive(desk, {}, model=[call("act"), say("Done.")])
    assert isinstance(run.calls[0].outcome, Unknown)
    assert (run.gate.kind, ended) == ("in_doubt", ["cancelled"])


def test_a_transactional_tool_is_not_async() -> None:
    async def act() -> None:
        """Acts."""

    with pytest.raises(DefinitionError, match="a transactional tool cannot be async"):
        tool(effect="transactional")(act)


def test_a_tool_knows_the_requester_and_the_agents_input() -> None:
    @tool(effect="read")
    def look(context: ToolContext) -> list[Any]:
        """Looks."""
        return [context.requester, context.business_key, context.input]

    assert outcome_of(look, business_key="k-1") == ToolResult(value=["ada", "k-1", {"name": "x"}])
