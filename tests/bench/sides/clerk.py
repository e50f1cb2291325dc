"""The agent of the `desk` measure: proposes the one call that its input names, at one of three risks, or asks."""

from typing import Any, Literal

from pydantic import BaseModel

from agents.sdk import agent, tool
from agents.sdk.scripts import Reply, Turn, call, say, script
from agents.tools.questions import ask_person
from runtime.core.values.enums import Risk

RISKS = {"voucher": Risk.LOW, "transfer": Risk.MEDIUM, "cash": Risk.HIGH}


class Task(BaseModel):
    """The call to propose."""

    name: Literal["pay_back", "close_account", "raise_limit", "ask_person"]
    args: dict[str, Any]


def _risk(way: str) -> Risk:
    return RISKS[way]


@tool(approval=True, risk=_risk, sentence="Pay {euros} euros back to {customer} by {way}")
def pay_back(
    order: str, euros: int, customer: str, way: Literal["voucher", "transfer", "cash"]
) -> str:
    """Pay money back to a customer."""
    return f"{euros} euros are on their way"


@tool(approval=True, risk="medium", sentence="Close the account of {customer}")
def close_account(customer: str, keep_days: int, note: str = "") -> str:
    """Close the account of a customer."""
    return f"closed {customer}"


@tool(approval=True, risk="medium", sentence="Raise the limit of {customer} to {euros} euros")
def raise_limit(customer: str, euros: int) -> str:
    """Raise the limit of a customer."""
    return f"{euros} euros"


@script
def model(turn: Turn) -> Reply:
    task = turn.input
    done = turn.result(task["name"])
    return say("Done.") if done else call(task["name"], **task["args"])


clerk = agent(
    name="clerk",
    description="Does one task.",
    input=Task,
    model=model,
    instructions="Propose the call.",
    tools=[pay_back, close_account, raise_limit, ask_person(int)],
)
