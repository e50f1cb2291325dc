"""A million pending requests: the cost of the inbox's first page, of a decision, and of suspended runs.

SQL writes the rows as the engine does, so that they satisfy every constraint; they are never decided. The decisions
are on real runs of hr_onboarding_single that wait at their gate. Their worker is stopped, so that only the decisions
are counted.
"""

import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

import psutil
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client

from config.local.processes import sockets
from config.processes import table
from runtime.store import pool
from runtime.upkeep import due_runs
from tests.bench.figures import Finding, Line, Spread, number, one, percentile, spread
from tests.bench.measures.flows import AGENT, people
from tests.bench.sides.desk import TIMEOUT_SECONDS, Desk, until_ended
from tests.support.site import Program, Site

FEW = 1000
WARM = 4  # decisions before those that count
BODY = 2000  # bytes of a seeded run's journal

RUNS = """
    WITH made AS (
        INSERT INTO runtime_run (id, agent, requester, input, status, position, head, base, due_at)
        SELECT abeyance_uuid7(clock_timestamp()), 'seeded', 'ada', '{{}}', 'suspended', 1, '', 0,
            clock_timestamp() + interval '7 days'
        FROM generate_series(1, {count}) RETURNING id
    ), kept AS (
        INSERT INTO runtime_journalentry (run_id, position, body, mac, key_id, commit_id)
        SELECT id, 1, repeat('x', {body}), '', '', gen_random_uuid() FROM made
    )
    INSERT INTO runtime_gate (id, run_id, kind, frame, call, tool, path, state)
    SELECT gen_random_uuid(), id, 'approval', '0', 'c1.0', 'set_privileges', '[]', 'open' FROM made
"""
REQUESTS = """
    INSERT INTO approvals_request (id, run_id, gate, kind, frame, call, tool, args, schema, path,
        effect, risk, sentence, action_digest, nonce, policy_version, requester, request_digest,
        seal, seal_key_id, status, created_at, expires_at)
    SELECT gen_random_uuid(), run.id, gen_random_uuid(), 'approval', '0', 'c1.0', 'set_privileges',
        '{{"username": "seeded", "security_level": 1}}', '{{}}', '["seeded", "set_privileges"]',
        'idempotent', 'high', 'Give seeded security level 1', 'sha256:seeded',
        gen_random_uuid()::text, '1', 'ada', 'sha256:seeded', '', '', 'pending',
        clock_timestamp(), clock_timestamp() + interval '7 days'
    FROM (SELECT id FROM runtime_run WHERE agent = 'seeded' LIMIT {count}) AS run,
        generate_series(1, {each})
"""


def measure(site: Site, *, quick: bool) -> Finding:
    """Measure with 1,000 pending, then with many; each line is the second figure over the first."""
    runs, each = (10_000, 10) if quick else (100_000, 10)
    pages, decisions = (20, 10) if quick else (60, 25)
    desk = Desk()
    with site.workers(1) as workers:
        waiting = _suspended(desk, 2 * (WARM + decisions))
        web, cookie = _web(site)
        _seed(site, FEW, 1)
        page = partial(_page, cookie=cookie)
        _timed(page, 5)
        few = _timed(page, pages)
        few_decided = _decide(site, desk, workers[0], waiting[: WARM + decisions])
        until_ended(desk.look, waiting[: WARM + decisions])  # decided runs go on meanwhile
        before = _standing(site, workers[0])
        swept = _sweep(10)
        began = time.monotonic()
        _seed(site, runs, each)
        seeded = time.monotonic() - began
        after = _standing(site, workers[0])
        _timed(page, 5)
        many = _timed(page, pages)
        many_decided = _decide(site, desk, workers[0], waiting[WARM + decisions :])
        swept_many = _sweep(10)
        site.end(web)
    pending = runs * each + FEW
    return Finding(
        title=f"{pending:,} pending approvals and {runs:,} suspended runs",
        lines=(
            Line(
                what=f"p95 of the inbox's first page to that with {FEW:,}",
                value=one(percentile(many, 95) / percentile(few, 95)),
                unit=" ×",
                most=1.5,
                ours=spread(many).text(" ms"),
                reference=spread(few).text(" ms"),
            ),
            Line(
                what=f"blocks Postgres looks at for a decision, to one beside {FEW:,}",
                value=one(many_decided.blocks / few_decided.blocks),
                unit=" ×",
                most=1.2,
                ours=number(many_decided.blocks),
                reference=number(few_decided.blocks),
            ),
            Line(
                what="the same: time of Postgres without COMMIT",
                value=one(many_decided.statements / few_decided.statements),
                unit=" ×",
                ours=f"{number(many_decided.statements)} ms",
                reference=f"{number(few_decided.statements)} ms",
            ),
            Line(
                what="the same: time until it is committed",
                value=_ratio(many_decided.times, few_decided.times),
                unit=" ×",
                ours=spread(many_decided.times).text(" ms"),
                reference=spread(few_decided.times).text(" ms"),
            ),
            Line(
                what="the sweeper's look to one before",
                value=_ratio(swept_many, swept),
                unit=" ×",
                ours=spread(swept_many).text(" ms"),
                reference=spread(swept).text(" ms"),
            ),
            Line(
                what=f"memory of a worker after {runs:,} more suspended runs to before",
                value=one(after[0] / before[0]),
                unit=" ×",
                most=1.05,
                ours=f"{number(after[0] / 2**20)} MB",
                reference=f"{number(before[0] / 2**20)} MB",
            ),
            Line(
                what="connections of the worker to Postgres, after less before",
                value=one(after[1] - before[1]),
                most=0,
                ours=str(after[1]),
                reference=str(before[1]),
            ),
        ),
        notes=(f"The rows were written in {seeded:.0f} s, ten requests for each run.",),
    )


def _ratio(many: list[float], few: list[float]) -> Spread:
    return one(spread(many).median / spread(few).median)


def _seed(site: Site, runs: int, each: int) -> None:
    with site.connect() as connection:
        connection.execute("SET synchronous_commit = off")
        connection.execute(RUNS.format(count=runs, body=BODY))
        connection.execute(REQUESTS.format(count=runs, each=each))
        for name in ("runtime_run", "approvals_request", "runtime_gate", "runtime_journalentry"):
            connection.execute(f"VACUUM ANALYZE {name}")
        connection.execute("CHECKPOINT")


def _suspended(desk: Desk, count: int) -> list[UUID]:
    runs = [desk.start(AGENT, person) for person in people(count)]
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while set(desk.look(runs).values()) != {"suspended"}:
        assert time.monotonic() < deadline, desk.look(runs)
        time.sleep(0.05)
    return runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """The cost of decisions: milliseconds of each; mean blocks and milliseconds of Postgres."""

    times: list[float]
    blocks: float
    statements: float


def _decide(site: Site, desk: Desk, worker: Program, runs: list[UUID]) -> Decided:
    """Decide one run after the other; the first few only until everything is prepared and at hand."""
    process = psutil.Process(worker.process.pid)
    with site.connect() as connection:
        process.suspend()
        try:
            for run in runs[:WARM]:
                desk.approve(run)
            connection.execute("SELECT pg_stat_statements_reset()")
            times = [_once(partial(desk.approve, run)) for run in runs[WARM:]]
            (row,) = connection.execute(
                """
                SELECT sum(shared_blks_hit + shared_blks_read)::float, sum(total_exec_time)
                FROM pg_stat_statements WHERE query <> 'COMMIT' AND query NOT LIKE '%pg_stat_statements%'
                """
            ).fetchall()
        finally:
            process.resume()
    blocks, statements = (float(str(value)) / len(times) for value in row)
    return Decided(times=times, blocks=blocks, statements=statements)


def _web(site: Site) -> tuple[Program, str]:
    """A web process, and the cookie of Bea, who is logged in."""
    with sockets.any_port(None) as listener:
        port = sockets.port_of(listener)
    command = next(
        process.command for process in table(bind=f"127.0.0.1:{port}") if process.name == "web"
    )
    program = site.run("web", command)
    program.wait_until_it_says("startup complete")
    client = Client()
    client.force_login(
        User.objects.get(username="bea"), backend="django.contrib.auth.backends.ModelBackend"
    )
    name = settings.SESSION_COOKIE_NAME
    return program, f"{port} {name}={client.cookies[name].value}"


def _page(cookie: str) -> None:
    port, _, session = cookie.partition(" ")
    request = urllib.request.Request(f"http://127.0.0.1:{port}/inbox/", headers={"Cookie": session})
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
        body = answer.read()
        assert answer.status == 200
        assert b"set_privileges" in body or b"security level" in body, body[:2000]


def _timed(act: Callable[[], None], count: int) -> list[float]:
    return [_once(act) for _ in range(count)]


def _once(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return 1000 * (time.perf_counter() - began)


def _sweep(count: int) -> list[float]:
    with pool.own() as connection:
        return _timed(partial(_due, connection), count)


def _due(connection: Any) -> None:
    due_runs.dispatch_window(connection)


def _standing(site: Site, worker: Program) -> tuple[int, int]:
    """Resident bytes of a worker, and how many connections it has."""
    with site.connect() as connection:
        (row,) = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s",
            (f"abeyance worker {worker.process.pid}",),
        ).fetchall()
    return worker.memory(), int(str(row[0]))
