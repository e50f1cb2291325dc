"""Puts a call behind an approval, by the Agent Approval Protocol. The package `agentapprovalprotocol` speaks it.

The credential is one of an instance, which asks and never decides. A caller can raise the risk of a call to high; any
other claim changes nothing.
"""

import functools
import inspect
import os
from collections.abc import Callable, Mapping
from contextlib import aclosing, closing
from typing import Any, Literal, ParamSpec, TypeVar, cast
from uuid import uuid4

from agentapprovalprotocol import Allow, AsyncClient, AsyncGate, Call, Client, Deny, Gate, Verdict
from pydantic_core import to_jsonable_python

from signoff_client.client import checked_url
from signoff_client.errors import NotApproved

P = ParamSpec("P")
R = TypeVar("R")

URL = "SIGNOFF_URL"
INSTANCE_TOKEN = "SIGNOFF_INSTANCE_TOKEN"  # noqa: S105 - the name of a variable
PATH = "/api/aap"
UNTIL_THE_DEADLINE = float("inf")

Risk = Literal["low", "medium", "high"]


def approved(
    *,
    risk: Risk,
    tool: str | None = None,
    timeout: str = "10m",
    url: str | None = None,
    token: str | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator: each call of the function waits for a person, runs once if approved, and reports its outcome.

    The tool has the name of the function, and the arguments are its own, as JSON. An `async` function waits without a
    thread. The address and the credential come from SIGNOFF_URL and SIGNOFF_INSTANCE_TOKEN unless they are given.
    Calls raise NotApproved if the call must not be made.
    """
    if risk not in ("low", "medium", "high"):
        raise ValueError("risk must be low, medium or high")

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        name = tool or function.__name__
        signature = inspect.signature(function)

        def call_of(args: Any, kwargs: Any) -> Call:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            return new_call(name, to_jsonable_python(bound.arguments), {"risk": risk})

        @functools.wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            client = Client(*connection(url, token))
            gate = Gate(client, timeout=timeout, wait_limit=UNTIL_THE_DEADLINE)
            with closing(client), gate.guard(call_of(args, kwargs)) as verdict:
                require(verdict)
                return function(*args, **kwargs)

        @functools.wraps(function)
        async def run_async(*args: P.args, **kwargs: P.kwargs) -> Any:
            client = AsyncClient(*connection(url, token))
            gate = AsyncGate(client, timeout=timeout, wait_limit=UNTIL_THE_DEADLINE)
            async with aclosing(client), gate.guard(call_of(args, kwargs)) as verdict:
                require(verdict)
                return await cast("Any", function)(*args, **kwargs)

        return cast("Callable[P, R]", run_async) if inspect.iscoroutinefunction(function) else run

    return decorate


def connection(url: str | None = None, token: str | None = None) -> tuple[str, str]:
    """Return the address of the protocol and the credential. Raise ValueError naming the variable that is not set."""
    values = {
        URL: url or os.environ.get(URL),
        INSTANCE_TOKEN: token or os.environ.get(INSTANCE_TOKEN),
    }
    for name, value in values.items():
        if not value:
            raise ValueError(f"{name} is not set")
    return f"{checked_url(str(values[URL]))}{PATH}", str(values[INSTANCE_TOKEN])


def new_call(
    tool: str,
    arguments: Mapping[str, Any],
    claims: Mapping[str, Any],
    *,
    key: str | None = None,
    reasoning: str | None = None,
) -> Call:
    """Return the call to ask about. With the key of an earlier one it is the same call, which runs once."""
    context = {"framework": "signoff-client", **claims}
    return Call(
        key=key or str(uuid4()),
        tool=tool,
        arguments=arguments,
        reasoning=reasoning,
        context=context,
    )


def require(verdict: Verdict) -> Allow:
    """Return the permission to make the call once. Raise NotApproved if there is none."""
    if isinstance(verdict, Deny):
        raise NotApproved(verdict.status, verdict.reason, verdict.request_id)
    assert isinstance(verdict, Allow)  # Pending is for gates that do not wait
    return verdict
