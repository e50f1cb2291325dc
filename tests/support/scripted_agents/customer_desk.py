"""An agent that pays orders back: with a plan, a memory, a prompt, a credential that may lapse, and a held answer.

Its model is `play`, in the process of the workers or behind an address that they ask.
"""

import os

import httpx2
from pydantic import BaseModel

from agents.credentials import Environment, File, OAuth
from agents.sdk import Answer, CredentialRefused, ToolContext, agent, last, prompt, tool
from agents.sdk.scripts import Reply, Turn, call, say, script, together
from tests.support.oauth_server import CLIENT

BANK_URL, BANK_SECRET, BANK_REFRESH = "DESK_BANK_URL", "DESK_BANK_SECRET", "DESK_BANK_REFRESH"
NEWER = "DESK_NEWER"  # in the environment of a process that has the newer release of the script
PROMPT = "shop/desk"
PLAN = ["Look up the order", "Pay the money back", "Tell the customer"]
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
