"""A million pending requests: the cost of the inbox's first page, of a decision, and of suspended runs.

SQL writes the rows as the engine does, so that they satisfy every constraint; they are never decided. The decisions
are on real runs of hr_onboarding_single that wait at their gate. Their worker is stopped, so that only the decisions
are counted.
"""

import time
import urllib.request
from collections.abc import Callable
from functools import partial
from statistics import median
from uuid import UUID

import psutil
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client

from runtime.store import pool
from runtime.upkeep import due_runs
from tests.bench.figures import Finding, Line, percentile, ratio, spread
from tests.bench.measures.flows import AGENT, people
from tests.bench.sides.desk import Desk
from tests.bench.site import Program, Site
from tests.support import servers
from tests.support.people import until

FEW = 1000
EACH = 10  # requests of a seeded run
WARM = 4  # decisions before those that count
SEEDED = ["runtime_run", "approvals_approval", "runtime_gate", "runtime_journalentry"]
RUNS = """
    WITH made AS (
        INSERT INTO runtime_run (id, agent, requester, input, status, position, head, base, due_at)
        SELECT signoff_uuid7(clock_timestamp()), 'seeded', 'ada', '{}', 'suspended', 1, '', 0,
            clock_timestamp() + interval '7 days'
        FROM generate_series(1, %s) RETURNING id
    ), kept AS (
        INSERT INTO runtime_journalentry (run_id, position, body, mac, key_id, commit_id)
        SELECT id, 1, repeat('x', 2000), '', '', gen_random_uuid() FROM made
    )
    INSERT INTO runtime_gate (id, run_id, kind, frame, call, tool, path, state)
    SELECT gen_random_uuid(), id, 'approval', '0', 'c1.0', 'set_privileges', '[]', 'open' FROM made
"""
REQUESTS = """
    INSERT INTO approvals_approval (id, run_id, gate, kind, frame, call, tool, args, schema, path,
        effect, risk, sentence, action_digest, nonce, policy_version, requester, approval_digest,
        seal, seal_key_id, status, created_at, expires_at)
    SELECT gen_random_uuid(), run.id, gen_random_uuid(), 'approval', '0', 'c1.0', 'set_privileges',
        '{"username": "seeded", "security_level": 1}', '{}', '["seeded", "set_privileges"]',
        'idempotent', 'high', 'Give seeded security level 1', 'sha256:seeded',
        gen_random_uuid()::text, '1', 'ada', 'sha256:seeded', '', '', 'pending',
        clock_timestamp(), clock_timestamp() + interval '7 days'
    FROM (SELECT id FROM runtime_run WHERE agent = 'seeded' LIMIT %s) AS run,
        generate_series(1, %s)
"""
SPENT = """
    SELECT sum(shared_blks_hit + shared_blks_read)::float, sum(total_exec_time)
    FROM pg_stat_statements WHERE query <> 'COMMIT' AND query NOT LIKE '%pg_stat_statements%'
"""
CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"


Costs = dict[str, list[float]]


def measure(site: Site, *, quick: bool) -> Finding:
    """Measure with 1,000 pending, then with many; each line is the second figure over the first."""
    runs = 10_000 if quick else 100_000
    pages, decisions = (20, 10) if quick else (60, 25)
    desk, worker = Desk(), site.worker()
    waiting = [desk.start(AGENT, person) for person in people(2 * (WARM + decisions))]
    until(lambda: set(desk.look(waiting).values()) == {"suspended"} or None, "every run to ask")
    web, page = _web(site)

    def costs(decided: list[UUID]) -> Costs:
        """Milliseconds of pages, decisions and looks of the sweeper; the worker's memory and connections."""
        _timed(page, 5)
        found = {"pages": _timed(page, pages), **_decide(site, desk, worker, decided)}
        desk.until_ended(decided)  # decided runs go on meanwhile
        with pool.open_own() as connection:
            found["swept"] = _timed(partial(due_runs.dispatch_window, connection), 10)
        with site.connect() as watch:
            name = f"signoff worker {worker.process.pid}"
            ((count,),) = watch.execute(CONNECTIONS, (name,)).fetchall()
        return {**found, "memory": [worker.memory() / 2**20], "connections": [int(str(count))]}

    _seed(site, FEW, 1)
    few = costs(waiting[: WARM + decisions])
    _seed(site, runs, EACH)
    many = costs(waiting[WARM + decisions :])
    site.end(web, worker)
    return Finding(
        f"{runs * EACH + FEW:,} pending approvals and {runs:,} suspended runs",
        _lines(few, many, runs),
        f"{EACH} requests for each run.",
    )


def _lines(few: Costs, many: Costs, runs: int) -> list[Line]:
    def times(what: str, key: str, of: Callable[[list[float]], float], **goal: float) -> Line:
        one, two = few[key], many[key]
        ours, theirs = spread(two, " ms"), spread(one, " ms")
        return Line(what, [of(two) / of(one)], " ×", ours=ours, reference=theirs, **goal)

    def single(what: str, key: str, unit: str, **goal: float) -> Line:
        return ratio(what, many[key], few[key], unit, **goal)

    p95 = partial(percentile, percent=95)
    (before,), (after,) = few["connections"], many["connections"]
    memory = f"memory of a worker after {runs:,} more suspended runs to before"
    return [
        times(f"p95 of the inbox's first page to that with {FEW:,}", "pages", p95, most=1.5),
        single(
            f"blocks Postgres looks at for a decision, to one beside {FEW:,}",
            "blocks",
            "",
            most=1.2,
        ),
        single("the same: time of Postgres without COMMIT", "statements", " ms"),
        times("the same: time until it is committed", "decisions", median),
        times("the sweeper's look to one before", "swept", median),
        single(memory, "memory", " MB", most=1.05),
        Line(
            "connections of the worker to Postgres, after less before",
            [after - before],
            most=0,
            ours=str(after),
            reference=str(before),
        ),
    ]


def _seed(site: Site, runs: int, each: int) -> None:
    site.seed(RUNS, runs, tables=[])
    site.seed(REQUESTS, runs, each, tables=SEEDED)


def _decide(site: Site, desk: Desk, worker: Program, runs: list[UUID]) -> Costs:
    """Decide one run after the other, the first few only until everything is prepared and at hand.

    Return the milliseconds of each, and in the mean the blocks and milliseconds of Postgres.
    """

    def decide(run: UUID) -> None:
        desk.approve(desk.pending([run])[run])

    process = psutil.Process(worker.process.pid)
    process.suspend()
    try:
        for run in runs[:WARM]:
            decide(run)
        with site.connect() as connection:
            connection.execute("SELECT pg_stat_statements_reset()")
            times = [took for run in runs[WARM:] for took in _timed(partial(decide, run), 1)]
            ((blocks, spent),) = connection.execute(SPENT).fetchall()
    finally:
        process.resume()
    mean = {
        "blocks": [float(str(blocks)) / len(times)],
        "statements": [float(str(spent)) / len(times)],
    }
    return {"decisions": times, **mean}


def _web(site: Site) -> tuple[Program, Callable[[], None]]:
    """A web process, and what gets its inbox as Bea."""
    port = servers.free_port()
    program = site.web(port)
    client = Client()
    client.force_login(
        User.objects.get(username="bea"), backend="django.contrib.auth.backends.ModelBackend"
    )
    name = settings.SESSION_COOKIE_NAME
    cookie = {"Cookie": f"{name}={client.cookies[name].value}"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/inbox/", headers=cookie)

    def page() -> None:
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            body = answer.read()
            assert answer.status == 200
            assert b"set_privileges" in body or b"security level" in body, body[:2000]

    return program, page


def _timed(act: Callable[[], object], count: int) -> list[float]:
    took = []
    for _ in range(count):
        began = time.perf_counter()
        act()
        took.append(1000 * (time.perf_counter() - began))
    return took
