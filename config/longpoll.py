"""Long polling: a request that waits for a state of a run is passed to Django again after each change of the run.

Only Django knows the state and who may read it: a header of its answer says for how many more seconds the request
should wait. In between, the request holds neither a thread nor a connection to Postgres. When many runs change at
once, their requests leave most of Django's threads to others.

A call through an MCP gateway names no run: the first answer does, and the next ones are asked for that run, so that the
call is not taken for a new one. After its result was sent, Django is told that the client has it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias
from uuid import UUID

if TYPE_CHECKING:  # it imports models, and this module is imported before Django is set up
    from runtime.web.live import LiveServer, Message, Send

# A request of an agent outside has the id of its run. The use of its approval may come before the run has the decision.
PLACE = re.compile(
    r"GET /api/(?:v1/runs|aap/v1/requests)/([^/?]+)\?.*wait=.*"
    r"|POST /api/aap/v1/requests/([^/?]+)/consume\?.*"
)
GATEWAYS = re.compile(r"POST /api/mcp/[^/]+/")  # requests that may be calls
HEADER = b"signoff-wait"  # runtime.web.api.runs's, which cannot be imported before Django is set up
PERSON_HEADER = b"signoff-person"  # who asks; for this module alone
RUN_HEADER = b"signoff-run"  # the run of a call, in Django's answer and in the next request for it
COLLECTED_HEADER = b"signoff-collected"  # in a request: the run whose result the client has
OURS = frozenset({PERSON_HEADER, RUN_HEADER, COLLECTED_HEADER})  # no client sends or gets them

_UNMET = re.compile(rb"unmet; (\d+)s")

WaitRequest: TypeAlias = "Callable[[Send, Headers], Awaitable[None]]"
Headers: TypeAlias = list[tuple[bytes, bytes]]


def find_run(scope: Message) -> UUID | None:
    """Return the run that this request waits for, None if it waits for none."""
    query = scope["query_string"].decode("latin-1")
    match = PLACE.fullmatch(f"{scope['method']} {scope['path']}?{query}")
    if match is None:
        return None
    try:
        return UUID(match[1] or match[2])
    except ValueError:
        return None


async def send_answer(
    run: UUID | None,
    ask: WaitRequest,
    disconnected: Awaitable[None],
    live_server: LiveServer,
    send: Send,
) -> None:
    """Send the first final answer, or the last one within the time. `run` is None for a message that may be a call."""
    leaving = asyncio.ensure_future(disconnected)
    headers: Headers = []
    try:
        if run is None:
            messages = await _wait_request(ask, [])
            called = _read_header(messages, RUN_HEADER)
            if not called:
                for message in messages:
                    await send(message)
                return
            run, headers = UUID(called.decode()), [(RUN_HEADER, called)]
        with live_server.listen(run) as wait:
            # Before the state is read, so that no change after it is missed.
            await live_server.read_version(wait)
            messages = await _wait_request(ask, headers)
            ends = asyncio.get_running_loop().time() + _read_seconds(messages)
            person = _read_header(messages, PERSON_HEADER).decode("latin-1")
            may_wait = _read_seconds(messages) > 0 and live_server.may_wait(wait, person)
            while may_wait and _read_seconds(messages):
                seconds_left = ends - asyncio.get_running_loop().time()
                if seconds_left <= 0:
                    break
                ring = asyncio.ensure_future(wait.changed.wait())
                try:
                    await asyncio.wait(
                        (ring, leaving), timeout=seconds_left, return_when=asyncio.FIRST_COMPLETED
                    )
                finally:
                    ring.cancel()
                if wait.over or leaving.done():
                    break
                wait.changed.clear()
                async with live_server.asking:
                    messages = await _wait_request(ask, headers)
        if not leaving.done():
            for message in messages:
                public = {**message}
                if "headers" in message:
                    headers = message["headers"]
                    public["headers"] = [pair for pair in headers if pair[0].lower() not in OURS]
                await send(public)
            if (called := _read_header(messages, RUN_HEADER)) and _read_header(
                messages, HEADER
            ) == b"met":
                await _wait_request(ask, [(COLLECTED_HEADER, called)])
    finally:
        leaving.cancel()


async def _wait_request(ask: WaitRequest, headers: Headers) -> list[Message]:
    messages: list[Message] = []

    async def keep(message: Message) -> None:
        messages.append(message)

    await ask(keep, headers)
    return messages


def _read_seconds(messages: list[Message]) -> float:
    """Return how many more seconds the request should wait, by the answer's header."""
    match = _UNMET.fullmatch(_read_header(messages, HEADER))
    return float(match[1]) if match else 0.0


def _read_header(messages: list[Message], name: bytes) -> bytes:
    headers = {key.lower(): value for key, value in messages[0]["headers"]} if messages else {}
    return bytes(headers.get(name, b""))
