"""Three agents of a shop, whose scripts play in the workers or behind an address that these ask.

`customer_desk` pays orders back: with a plan, a memory, a prompt, a credential that may lapse, and a held answer.
`parcels` waits for an event, and remembers a summary of its thread.
`stocktake` takes many turns, of which it keeps a summary, and its last result is a large one.
"""

import os
from datetime import UTC, datetime, timedelta

import httpx2
from pydantic import BaseModel

from agents.credentials import Environment, File, OAuth
from agents.sdk import (
    Answer,
    Compaction,
    CredentialRefused,
    ToolContext,
    agent,
    last,
    prompt,
    summary,
    tool,
)
from agents.sdk.scripts import Reply, Turn, call, say, script, together
from agents.tools.timers import wait_for
from tests.support.oauth_server import CLIENT

BANK_URL, BANK_SECRET, BANK_REFRESH = "DESK_BANK_URL", "DESK_BANK_SECRET", "DESK_BANK_REFRESH"
NEWER = "DESK_NEWER"  # in the environment of a process that has the newer release of the script
PROMPT = "shop/desk"
PLAN = ["Look up the order", "Pay the money back", "Tell the customer"]
SHELVES, LARGE = 20, 70_000
PRICES = {"A-1": 40, "A-2": 90, "A-3": 15}

BANK = os.environ.get(BANK_URL, "http://127.0.0.1:9")
bank = OAuth(
    name="bank",
    token_url=f"{BANK}/token",
    client_id=CLIENT,
    client_secret=Environment("bank_secret", BANK_SECRET),
    refresh_token=File("bank_refresh", os.environ.get(BANK_REFRESH, "/nowhere")),
)


class Order(BaseModel):
    customer: str
    order: str


@tool(effect="read")
def look_up(order: str) -> dict[str, int]:
    """Look up what an order cost."""
    return {"euros": PRICES[order]}


@tool(
    effect="idempotent",
    risk="medium",
    approval=True,
    credentials=[bank],
    sentence="Pay {euros} euros back for order {order}",
)
def pay_back(context: ToolContext, order: str, euros: int) -> str:
    """Pay the price of an order back."""
    headers = {"Authorization": f"Bearer {context.credentials['bank']}"}
    if httpx2.get(f"{BANK}/api", headers=headers).status_code == 401:
        raise CredentialRefused("the bank refused the token")
    return f"{euros} euros for order {order} are on their way"


@script
def play(turn: Turn) -> Reply:
    """Look the order up, pay it back and say so, ticking the plan between."""
    order, paid = turn.input["order"], turn.result("pay_back")
    if not turn.results:
        return together(call("plan", write=PLAN), call("look_up", order=order))
    if len(turn.results) == 2:
        return call("plan", done=[1], doing=2)
    price = turn.result("look_up")
    assert price is not None
    if paid is None:
        return call("pay_back", order=order, euros=price.content["euros"])
    if len(turn.results) == 4 and NEWER not in os.environ:
        return call("plan", done=[2], doing=3)
    answers = [one["text"] for one in turn.memory if "answered_by" in one]
    before = f" Last time I wrote: {answers[-1]}" if answers else ""
    return say(f"{paid.content if paid.ok else 'Nothing was paid'}.{before}")


customer_desk = agent(
    name="customer_desk",
    description="Pays orders back.",
    instructions=prompt(PROMPT, "You look after the order {order}. Pay it back, and say so."),
    input=Order,
    model=play,
    tools=[look_up, pay_back],
    plan=True,
    thread_memory=last(20),
    answer=Answer(),
)


class Parcel(BaseModel):
    parcel: str


@script
def await_parcel(turn: Turn) -> Reply:
    """Wait for the parcel, and say so."""
    came = turn.result("wait_for")
    if came is not None:
        return say(f"{turn.input['parcel']} came with {came.content['data']['by']}.")
    until = (datetime.now(UTC) + timedelta(days=30)).isoformat()
    return call("wait_for", event="parcel.arrived", match=turn.input, until=until)


parcels = agent(
    name="parcels",
    description="Waits for a parcel.",
    instructions="Wait for the parcel, and say who brought it.",
    input=Parcel,
    model=await_parcel,
    tools=[wait_for],
    thread_memory=summary(200),
)


class Stock(BaseModel):
    shelves: int


@tool(effect="read")
def count_shelf(shelf: int) -> dict[str, int | str]:
    """List the goods of a shelf."""
    return {"shelf": shelf, "list": "x" * LARGE if shelf == SHELVES else ""}


@tool(approval=True, sentence="Close the books of the stock")
def close_books() -> str:
    """Close the books."""
    return "closed"


@script
def count(turn: Turn) -> Reply:
    """Count one shelf after another, then close the books."""
    counted = [one.content["shelf"] for one in turn.results if one.tool == "count_shelf"]
    done = max(counted, default=0)
    if turn.sums_up:
        return say(f"Shelves up to {done} are counted.")
    if turn.result("close_books"):
        return say("Counted.")
    if done < turn.input["shelves"]:
        return call("count_shelf", shelf=done + 1)
    return call("close_books")


stocktake = agent(
    name="stocktake",
    description="Counts the stock.",
    instructions="Count each shelf, and close the books.",
    input=Stock,
    model=count,
    tools=[count_shelf, close_books],
    compaction=Compaction(messages=6),
)
