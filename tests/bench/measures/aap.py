"""Agents outside: create → decide → consume over HTTP against Django views written by hand, and many that wait at once.

Ours has a web process, a worker and a sweeper; the reference is a web process of the same server with the views of
`tests.bench.sides.bare_views`.
"""

import asyncio
import hashlib
import json
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from typing import Any
from uuid import UUID, uuid4

import psutil
from django.contrib.auth.models import User

from approvals.models import Approval
from approvals.people import tokens
from approvals.requests import confirmation
from approvals.rights.principals import Scope
from tests.bench.figures import Finding, Line, ratio
from tests.bench.sides import bare_views
from tests.bench.sides.desk import Desk
from tests.bench.site import Program, Site
from tests.support import servers
from tests.support.people import until

AT_ONCE = 8
BODY = {
    "tool": "deploy",
    "arguments": {"version": "1.4.2"},
    "timeout": "1h",
    "context": {"call_id": "thread:1", "framework": "langgraph"},
}
WAITING = 1000
OF_INSTANCE = 100  # waiting requests
CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'signoff web%'"
WITHIN_SECONDS = 600.0


class Web:
    """HTTP requests to one web process, over a connection of each thread."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._own = threading.local()

    def send(self, path: str, token: str, body: Any = None, key: str = "") -> tuple[int, Any]:
        if not hasattr(self._own, "connection"):
            self._own.connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        if key:
            headers["Idempotency-Key"] = key
        text = None if body is None else json.dumps(body)
        connection: HTTPConnection = self._own.connection
        try:
            connection.request("POST", path, text, headers)
            answer = connection.getresponse()
        except ConnectionError:  # the server closes one that was idle
            connection.close()
            connection.request("POST", path, text, headers)
            answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


class Ours:
    """Requests of an instance, which Bea decides."""

    def __init__(self, web: Web) -> None:
        self.web = web
        users = {user.username: user for user in User.objects.filter(username__in=("admin", "bea"))}
        _, self._admin = tokens.create(users["admin"], [Scope.INSTANCES_MANAGE])
        _, self._bea = tokens.create(users["bea"], [Scope.APPROVALS_DECIDE])
        self.token = self.provision()

    def provision(self) -> str:
        """Return the credential of a new instance."""
        _, answer = self.web.send("/api/aap/v1/instances", self._admin, {}, str(uuid4()))
        return str(answer["credential"]["token"])

    def create(self, token: str = "") -> str:
        path = "/api/aap/v1/requests"
        status, answer = self.web.send(path, token or self.token, BODY, str(uuid4()))
        assert status == 201, answer
        return str(answer["id"])

    def wait(self, requests: Sequence[str]) -> dict[str, Any]:
        """Return the approvals of the requests, once people are asked about all of them."""

        def read() -> dict[str, Approval] | None:
            rows = Approval.objects.filter(run__in=map(UUID, requests), status="pending")
            approvals = {str(approval.run_id): approval for approval in rows}
            return approvals if len(approvals) == len(requests) else None

        return until(read, "every request to wait", WITHIN_SECONDS)

    def decide(self, approval: Approval) -> None:
        body = {
            "verdict": "approve",
            "digest": approval.approval_digest,
            "confirm": confirmation.find_required_name(approval),
        }
        path = f"/api/v1/approvals/{approval.id}/decision"
        status, answer = self.web.send(path, self._bea, body)
        assert status == 200, answer

    def consume(self, request: str) -> None:
        """Use the approval. The answer comes when its run has received it."""
        path = f"/api/aap/v1/requests/{request}/consume"
        status, answer = self.web.send(path, self.token, key=str(uuid4()))
        assert status == 200, answer


class Bare:
    """The same requests to the views written by hand."""

    def __init__(self, web: Web) -> None:
        self.web, self.token = web, uuid4().hex

    def create(self) -> str:
        status, answer = self.web.send("/requests", self.token, BODY, str(uuid4()))
        assert status == 201, answer
        return str(answer["id"])

    def wait(self, requests: Sequence[str]) -> dict[str, Any]:
        return {request: request for request in requests}

    def decide(self, request: str) -> None:
        status, _ = self.web.send(
            f"/requests/{request}/decision", self.token, {"verdict": "approve"}
        )
        assert status == 200

    def consume(self, request: str) -> None:
        status, _ = self.web.send(f"/requests/{request}/consume", self.token)
        assert status == 200


def measure(site: Site, *, quick: bool) -> Finding:
    """Take rounds of both sides in turn, then let many requests wait."""
    rounds, alone, count = (3, 10, 40) if quick else (5, 15, 64)
    waiting = 200 if quick else WAITING
    Desk()  # makes people
    ports = [servers.free_port(), servers.free_port()]
    bare_web = site.web(ports[1], DJANGO_SETTINGS_MODULE="tests.bench.sides.bare_settings")
    web, worker, sweeper = site.web(ports[0]), site.worker(), site.sweeper()
    ours, bare = Ours(Web(ports[0])), Bare(Web(ports[1]))
    with site.connect() as connection:
        connection.execute(bare_views.TABLES)
        hashed = hashlib.sha256(bare.token.encode()).hexdigest()
        connection.execute("INSERT INTO bare_token VALUES (%s, 'bot')", (hashed,))
    sides: tuple[Ours | Bare, ...] = (ours, bare)
    for side in sides:  # imports and connections
        _requests_a_second(side, AT_ONCE)
    times = [[_milliseconds(side, alone) for side in sides] for _ in range(rounds)]
    rates = [[_requests_a_second(side, count) for side in sides] for _ in range(rounds)]
    our_times, bare_times = zip(*times, strict=True)
    our_rates, bare_rates = zip(*rates, strict=True)
    lines = [
        ratio("create → decide → consume, p50 alone", our_times, bare_times, " ms"),
        ratio("requests a second, 8 at once", our_rates, bare_rates, "/s"),
        *_waiting(site, web, ours, waiting),
    ]
    site.end(bare_web, web, worker, sweeper)
    note = "The time in which the worker asks people, between create and decide, does not count."
    return Finding("Agents outside, against Django views written by hand", lines, note)


def _milliseconds(side: Ours | Bare, count: int) -> float:
    """Return the median of the three calls, one request after the other."""
    taken = []
    for _ in range(count):
        began = time.perf_counter()
        request = side.create()
        created = time.perf_counter() - began
        form = side.wait([request])[request]
        began = time.perf_counter()
        side.decide(form)
        side.consume(request)
        taken.append(1000 * (created + time.perf_counter() - began))
    return statistics.median(taken)


def _requests_a_second(side: Ours | Bare, count: int) -> float:
    """Create all requests, decide all, use all; the time in which people are asked does not count."""
    with ThreadPoolExecutor(AT_ONCE) as people:

        def seconds(act: Callable[[Any], object], values: Iterable[Any]) -> float:
            began = time.perf_counter()
            list(people.map(act, values))
            return time.perf_counter() - began

        requests: list[str] = []
        took = seconds(lambda _: requests.append(side.create()), range(count))
        forms = side.wait(requests)
        took += seconds(side.decide, forms.values()) + seconds(side.consume, requests)
        return 3 * count / took


def _waiting(site: Site, web: Program, ours: Ours, count: int) -> Iterator[Line]:
    """Let as many requests wait for their decisions, and compare the web process with itself before."""
    instances = [ours.provision() for _ in range(-(-count // OF_INSTANCE))]
    owners = [instances[number % len(instances)] for number in range(count)]
    with ThreadPoolExecutor(AT_ONCE) as people:
        requests = list(people.map(ours.create, owners))
    ours.wait(requests)
    _until_idle(web)
    before = _size(site, web)
    waiting, after = asyncio.run(
        _hold(site, web, ours.web.port, list(zip(requests, owners, strict=True)))
    )
    memory = (after[0] - before[0]) / 1024 / count
    yield Line("requests that wait at once on one web process", [waiting])
    yield Line("  memory of each", [memory], " KB")
    yield Line("  threads more, for all of them", [after[1] - before[1]])
    yield Line("  connections to Postgres more, for all of them", [after[2] - before[2]])


async def _hold(
    site: Site, web: Program, port: int, requests: Sequence[tuple[str, str]]
) -> tuple[int, tuple[int, int, int]]:
    """Have all wait. Return how many do, and the size of the web process meanwhile."""
    answers, writers = [], []
    for request, token in requests:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            f"GET /api/aap/v1/requests/{request}?wait=30s HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            f"Authorization: Bearer {token}\r\n\r\n".encode()
        )
        answers.append(asyncio.ensure_future(reader.readline()))
        writers.append(writer)
    await asyncio.to_thread(_until_idle, web)
    size = await asyncio.to_thread(_size, site, web)
    waiting = sum(not answer.done() for answer in answers)
    for writer in writers:
        writer.close()
    await asyncio.gather(*answers, return_exceptions=True)
    return waiting, size


def _until_idle(web: Program) -> None:
    """Return once the process does next to nothing."""

    def read() -> bool | None:
        before = web.cpu()
        time.sleep(0.5)  # in which its processor time is measured
        return web.cpu() - before < 0.05 or None

    until(read, "the web process to be idle")


def _size(site: Site, web: Program) -> tuple[int, int, int]:
    """Return bytes, threads, and connections to Postgres."""
    with site.connect() as connection:
        ((connections,),) = connection.execute(CONNECTIONS).fetchall()
    return web.memory(), psutil.Process(web.process.pid).num_threads(), int(str(connections))
