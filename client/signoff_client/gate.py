"""Puts a call or a command behind an approval, by the Agent Approval Protocol, which `agentapprovalprotocol` speaks.

The credential is one of an instance, which asks and never decides. A caller can raise the risk of a call to high; any
other claim changes nothing.
"""

import functools
import inspect
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, closing, contextmanager, suppress
from types import FrameType
from typing import Any, Literal, ParamSpec, TypeVar, cast
from uuid import uuid4

import agentapprovalprotocol as protocol
from pydantic_core import to_jsonable_python

from signoff_client.client import check_url
from signoff_client.errors import NotApproved

P = ParamSpec("P")
R = TypeVar("R")

URL = "SIGNOFF_URL"
INSTANCE_TOKEN = "SIGNOFF_INSTANCE_TOKEN"  # noqa: S105 - the name of a variable
PATH = "/api/aap"
UNTIL_THE_DEADLINE = float("inf")

COMMAND = "command"  # the argument that shows the reviewer what will run
FORWARDED = (signal.SIGTERM, signal.SIGHUP)

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

        def call_of(args: Any, kwargs: Any) -> protocol.Call:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            return make_call(name, to_jsonable_python(bound.arguments), {"risk": risk})

        @functools.wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            client = protocol.Client(*read_connection(url, token))
            gate = protocol.Gate(client, timeout=timeout, wait_limit=UNTIL_THE_DEADLINE)
            with closing(client), gate.guard(call_of(args, kwargs)) as verdict:
                require(verdict)
                return function(*args, **kwargs)

        @functools.wraps(function)
        async def run_async(*args: P.args, **kwargs: P.kwargs) -> Any:
            client = protocol.AsyncClient(*read_connection(url, token))
            gate = protocol.AsyncGate(client, timeout=timeout, wait_limit=UNTIL_THE_DEADLINE)
            async with aclosing(client), gate.guard(call_of(args, kwargs)) as verdict:
                require(verdict)
                return await cast("Any", function)(*args, **kwargs)

        return cast("Callable[P, R]", run_async) if inspect.iscoroutinefunction(function) else run

    return decorate


def ask(
    url: str | None,
    call: protocol.Call,
    *,
    timeout: str,
    command: Sequence[str],
    tell: Callable[[str], None],
) -> tuple[str, int]:
    """Wait until a person decides. Run the command if it was approved; return the request's id and the exit status.

    Raise NotApproved if the command must not run. A signal while it waits cancels the request.
    """
    with (
        closing(_Asking(*read_connection(url))) as client,
        _handle_signals({signal.SIGTERM: _interrupt}),
    ):
        client.tell = tell
        try:
            verdict = protocol.Gate(client, timeout=timeout, wait_limit=UNTIL_THE_DEADLINE).check(
                call
            )
        except KeyboardInterrupt:
            if client.request is not None:
                with suppress(protocol.AAPError, protocol.ProtocolError):
                    client.cancel(client.request.id)
            raise
        allowed = require(verdict)
        return allowed.request_id, _run(command, allowed) if command else 0


def read_arguments(words: Sequence[str], command: Sequence[str]) -> dict[str, Any]:
    """Return the arguments of `NAME=TEXT` and `NAME:=JSON`, with the command among them."""
    arguments: dict[str, Any] = {COMMAND: list(command)} if command else {}
    for word in words:
        name, separator, text = word.partition("=")
        is_json = name.endswith(":")
        name = name.removesuffix(":")
        if not separator or not name or name in arguments:
            raise ValueError(f"--arg needs NAME=TEXT or NAME:=JSON, with each name once: {word}")
        try:
            arguments[name] = json.loads(text) if is_json else text
        except ValueError:
            raise ValueError(f"--arg {name} is not JSON") from None
    return arguments


def read_connection(url: str | None = None, token: str | None = None) -> tuple[str, str]:
    """Return the address of the protocol and the credential. Raise ValueError naming the variable that is not set."""
    values = {
        URL: url or os.environ.get(URL),
        INSTANCE_TOKEN: token or os.environ.get(INSTANCE_TOKEN),
    }
    for name, value in values.items():
        if not value:
            raise ValueError(f"{name} is not set")
    return f"{check_url(str(values[URL]))}{PATH}", str(values[INSTANCE_TOKEN])


def make_call(
    tool: str,
    arguments: Mapping[str, Any],
    claims: Mapping[str, Any],
    *,
    key: str | None = None,
    reasoning: str | None = None,
) -> protocol.Call:
    """Return the call to ask about. With the key of an earlier one it is the same call, which runs once."""
    context = {"framework": "signoff-client", **claims}
    key = key or str(uuid4())
    return protocol.Call(
        key=key, tool=tool, arguments=arguments, reasoning=reasoning, context=context
    )


def require(verdict: protocol.Verdict) -> protocol.Allow:
    """Return the permission to make the call once. Raise NotApproved if there is none."""
    if isinstance(verdict, protocol.Deny):
        raise NotApproved(verdict.status, verdict.reason, verdict.request_id)
    assert isinstance(verdict, protocol.Allow)  # Pending is for gates that do not wait
    return verdict


class _Asking(protocol.Client):
    """Remembers its request, so that it can be cancelled."""

    request: protocol.Request | None = None
    tell: Callable[[str], None]

    def create(self, submission: Mapping[str, Any], key: str) -> protocol.Request:
        """Make the request, or find the one of this key."""
        self.request = super().create(submission, key)
        if self.request.status == "pending":
            page = f"{self.base_url.removesuffix(PATH)}/runs/{self.request.id}/"
            self.tell(
                f"waits for a person until {self.request.deadline_at:%Y-%m-%d %H:%M} UTC: {page}"
            )
        return self.request


def _run(command: Sequence[str], allowed: protocol.Allow) -> int:
    """Run the command and report its outcome. Signals go on to it, so that the outcome is its own."""
    try:
        process = subprocess.Popen(command)
    except OSError as exc:
        allowed.report("failed", f"not started: {exc.strerror}")
        raise
    forward = dict.fromkeys(FORWARDED, lambda number, _: process.send_signal(number))
    with _handle_signals(
        {**forward, signal.SIGINT: lambda *_: None}
    ):  # a terminal sends SIGINT to both
        status = process.wait()
    allowed.report("succeeded" if status == 0 else "failed", f"exit status {status}")
    return status if status >= 0 else 128 - status


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@contextmanager
def _handle_signals(
    handlers: Mapping[signal.Signals, Callable[[int, FrameType | None], Any]],
) -> Iterator[None]:
    """Handle these signals so, until the end of the block."""
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
