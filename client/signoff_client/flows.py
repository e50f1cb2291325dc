"""The acts of the client as generators, each written once for the synchronous and the asynchronous form.

A flow yields steps, and is sent what each step gave: the response of an HTTP request, or the error that kept it away.
"""

import math
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from json import JSONDecodeError
from typing import Any, TypeAlias, TypedDict, TypeVar, Unpack
from uuid import UUID, uuid4

import httpx2
from pydantic import ValidationError

from signoff_client import routes
from signoff_client.errors import NoAnswer, NotInTime, refusal_of

T = TypeVar("T")

RETRY_SECONDS = 30.0  # in all, with the pauses
WAIT_SECONDS = 30  # of one long poll
WATCH_SECONDS = 2  # of one that looks for changes before the end
POLL_SECONDS = 1.0  # between two looks, where the server cannot tell of a change
_PAUSE_SECONDS = (0.1, 2.0)  # before the first retry, and at poll_seconds
_BUSY = (429, 503)  # nothing was done
_LOST = (502, 504)  # a proxy answers, and it may have been done
_PAGE = 200


@dataclass(frozen=True, slots=True)
class Pause:
    """Sleep."""

    seconds: float


Step: TypeAlias = routes.ApiRequest[Any] | Pause
Reply: TypeAlias = httpx2.Response | httpx2.TransportError | None
Flow: TypeAlias = Generator[Step, Reply, T]
OnChange: TypeAlias = Callable[[routes.Run], None]


class DecisionFields(TypedDict, total=False):
    """What some verdicts need besides: see the operation `decide` in the API's own documentation."""

    confirm: str | None
    result: Any
    arguments: dict[str, Any]
    grant: dict[str, Any]


def send(request: routes.ApiRequest[T]) -> Flow[T]:
    """Send a request until it is answered. Raise Refusal, or NoAnswer if 30 seconds did not suffice."""
    deadline = time.monotonic() + RETRY_SECONDS
    pause, longest = _PAUSE_SECONDS
    while True:
        reply = yield request
        assert reply is not None
        if isinstance(reply, httpx2.Response) and reply.status_code not in (*_BUSY, *_LOST):
            if reply.is_success:
                try:
                    return request.route.read(reply.content)
                except ValidationError as exc:
                    raise NoAnswer(
                        f"the answer to {request.path} is not one of Signoff: {exc}"
                    ) from None
            try:
                facts = reply.json()
            except (JSONDecodeError, UnicodeDecodeError):
                facts = {}
            raise refusal_of(reply.status_code, facts if isinstance(facts, dict) else {})
        wait = max(pause, _retry_after(reply))
        if isinstance(reply, httpx2.Response):
            may_be_done, problem = reply.status_code not in _BUSY, f"answers {reply.status_code}"
        else:
            may_be_done = not isinstance(reply, httpx2.ConnectError | httpx2.ConnectTimeout)
            problem = f"did not answer: {reply}"
        may_repeat = request.route.repeatable or not may_be_done
        if not may_repeat or time.monotonic() + wait > deadline:
            raise NoAnswer(f"the server {problem}") from None
        yield Pause(wait)
        pause = min(2 * pause, longest)


def start(
    agent: str,
    input: Any,
    *,
    business_key: str | None = None,
    thread: str | None = None,
    budget: dict[str, Any] | None = None,
) -> Flow[routes.Run]:
    """Start a run, or return the one of this business key.

    Without one it gets a random one, so that a repeated request starts no second run.
    """
    key = business_key or f"client-{uuid4().hex}"
    return send(
        routes.START_RUN.request(
            agent=agent, input=input, business_key=key, thread=thread, budget=budget
        )
    )


def wait(
    run: UUID | str, *, seconds: float | None = None, on_change: OnChange | None = None
) -> Flow[routes.Run]:
    """Wait until the run has ended, or raise NotInTime. Each new status or gate is told to `on_change`.

    A long poll ends with the run; earlier changes are looked for every 2 seconds, if they are asked for.
    """
    longest = WAIT_SECONDS if on_change is None else WATCH_SECONDS
    deadline = math.inf if seconds is None else time.monotonic() + seconds
    last_state = None
    while True:
        sent_at = time.monotonic()
        poll_seconds = max(1, int(min(longest, deadline - sent_at)))
        state = yield from send(
            routes.READ_RUN.request(id=run, wait=f"{poll_seconds}s", until="ended")
        )
        if on_change is not None and (state.status, state.gates) != last_state:
            last_state = (state.status, state.gates)
            on_change(state)
        if state.ended_at is not None:
            return state
        if time.monotonic() >= deadline:
            raise NotInTime(f"the run is still {state.status}")
        if time.monotonic() - sent_at < POLL_SECONDS:  # the server did not wait
            yield Pause(POLL_SECONDS)


def read_run(run: UUID | str) -> Flow[routes.Run]:
    """Read a run."""
    return send(routes.READ_RUN.request(id=run))


def list_runs(*, limit: int = 50, cursor: str | None = None) -> Flow[routes.RunPage]:
    """Read a page of the runs, the newest first."""
    return send(routes.LIST_RUNS.request(limit=limit, cursor=cursor))


def read_approval(approval: UUID | str) -> Flow[routes.Approval]:
    """Read a request."""
    return send(routes.READ_APPROVAL.request(id=approval))


def list_approvals(
    *, status: str | None = "pending", limit: int = 50, cursor: str | None = None
) -> Flow[routes.ApprovalPage]:
    """Read a page of the requests in this status, the oldest first."""
    return send(routes.LIST_APPROVALS.request(status=status, limit=limit, cursor=cursor))


def export(run: UUID | str) -> Flow[bytes]:
    """End a run here, and return its signed file for another installation."""
    return send(routes.EXPORT_RUN.request(id=run))


def decide(
    approval: routes.Approval, verdict: str, *, reason: str = "", **fields: Unpack[DecisionFields]
) -> Flow[routes.Approval]:
    """Decide the request as the caller saw it: its digest is sent, and a changed request is refused.

    After NoAnswer, read it again, or decide again: the same decision twice counts once.
    """
    return send(
        routes.DECIDE.request(
            id=approval.id, verdict=verdict, digest=approval.digest, reason=reason, **fields
        )
    )


def next_entries(run: UUID | str, after: int) -> Flow[tuple[list[routes.JournalEntry], bool]]:
    """Return the entries after a position, and whether the run has ended and these are the last.

    Without an entry it pauses before it returns.
    """
    state = yield from send(
        routes.READ_RUN.request(id=run)
    )  # before the entries, or the last are missed
    page = yield from send(routes.READ_JOURNAL.request(id=run, limit=_PAGE, cursor=after))
    is_last = state.ended_at is not None and page.next is None
    if not page.items and not is_last:
        yield Pause(POLL_SECONDS)
    return page.items, is_last


def _retry_after(reply: Reply) -> float:
    value = reply.headers.get("Retry-After", "") if isinstance(reply, httpx2.Response) else ""
    if value.isdigit():
        return float(value)
    try:
        return (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds()
    except (ValueError, TypeError):
        return 0.0
