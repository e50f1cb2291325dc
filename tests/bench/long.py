"""One long run: what its last steps cost beside its first, what it keeps, and what it takes to load it.

Times are those that the entries themselves bear. The reference for bytes and for loading is a bare table
with exactly the same texts in it, written by as many bare transactions.
"""

import itertools
import json
import statistics
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from uuid import UUID, uuid4

import psycopg

from tests.bench.desk import ENDS, PATIENCE, Desk, until_ended
from tests.bench.figures import Finding, Line, Spread, number, one, ratios, spread
from tests.bench.references import INSERT, TABLES, UPDATE
from tests.bench.site import Site
from tests.bench.steps import GIVEN, GOT

STEPS, WINDOW = 1000, 100
EARLY = 20  # steps of a run before those that are compared
PAIRS = 48  # of an end and a beginning in the same moments
GATES, TEXT = 50, 2000
LOADS = 10
TOOL, MODEL = "ToolStarted", "ToolReturned"  # what the entry before such a step ends with
NOTE = (
    "An entry has {size} bytes in the mean. Every second step asks the model, which is given the whole"
    " conversation; whoever plays it looks at its first message and its length alone, as a provider would do its"
    " work elsewhere. A run's end is compared with the beginning of another at the same moments. Bare decoding is of"
    " every entry, and of the continuation where there is one."
)

Connection = psycopg.Connection[tuple[object, ...]]


def measure(site: Site, *, quick: bool) -> Finding:
    """A run of 1,000 steps of 1 KB, then one of 50 gates."""
    steps, gates = (300, 10) if quick else (STEPS, GATES)
    desk = Desk()
    with site.connect() as connection:
        with site.workers(1):
            until_ended(desk.look, [_walk(desk, 20)])
            before = _bytes(connection, "runtime_journalentry", "runtime_run")
            bodies = _walked(desk, connection, steps)
            ours = _bytes(connection, "runtime_journalentry", "runtime_run") - before
            relay = _relay(desk, connection, steps)
            kept, payload = _climb(desk, connection, gates)
            _, theirs = _bare(connection, bodies)
            waiting = _walk(desk, steps, gate=True)
            _until_suspended(desk, waiting)
        loads = [
            _loads("loading it where it waits at a gate, to bare decoding", connection, waiting),
            *(
                _loads(f"loading it where its worker was lost {where}", connection, lost)
                for where, lost in _lost(site, desk, connection, steps)
            ),
        ]
    size = statistics.mean(map(len, bodies))
    return Finding(
        title=f"A run of {len(bodies):,} steps of 1 KB, and one of {gates} gates",
        lines=(
            _growth("a step at the end to one at the start: a tool", relay, TOOL, 1.1),
            _growth("the same of a step that asks the model", relay, MODEL, None),
            Line(
                what="bytes in Postgres to those of the bare table",
                value=one(ours / theirs),
                unit=" ×",
                most=1.35,
                ours=f"{number(ours / 1024)} KB",
                reference=f"{number(theirs / 1024)} KB",
            ),
            *loads,
            Line(
                what=f"bytes kept of a run of {gates} gates to its payload",
                value=one(kept / payload),
                unit=" ×",
                most=5,
                ours=f"{number(kept / 1024)} KB",
                reference=f"{number(payload / 1024)} KB",
            ),
        ),
        notes=(NOTE.format(size=number(size)),),
    )


def _walk(desk: Desk, steps: int, *, gate: bool = False) -> UUID:
    given = {"turns": steps // 2, "given": GIVEN, "got": GOT, "gate": gate}
    return desk.start("walker", given)


def _walked(desk: Desk, connection: Connection, steps: int) -> list[str]:
    """The entries of a run that has taken so many steps."""
    run = _walk(desk, steps)
    until_ended(desk.look, [run])
    return _bodies(connection, run)


def _relay(desk: Desk, connection: Connection, steps: int) -> list[list[str]]:
    """The entries of runs of which each begins while the one before takes its last steps: both on the same machine."""
    runs = [_walk(desk, steps)]
    for _ in range(PAIRS):
        _until_at(connection, runs[-1], steps - WINDOW - EARLY)
        runs.append(_walk(desk, steps))
    until_ended(desk.look, runs)
    return [_bodies(connection, run) for run in runs]


def _lost(site: Site, desk: Desk, connection: Connection, steps: int) -> Iterator[tuple[str, UUID]]:
    """Runs whose worker is killed: with few entries since the last continuation, and with about as many as can be."""
    for where, share in (("near its end", 0.95), ("at four fifths", 0.8)):
        with site.workers(1) as (worker,):
            run = _walk(desk, steps)
            _until_at(connection, run, int(share * steps))
            worker.process.kill()
        yield where, run


def _until_at(connection: Connection, run: UUID, position: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while _position(connection, run) < position:
        assert time.monotonic() < deadline, f"run {run} does not come to its entry {position}"
        time.sleep(0.003)


def _position(connection: Connection, run: UUID) -> int:
    (row,) = connection.execute("SELECT position FROM runtime_run WHERE id = %s", (run,)).fetchall()
    return int(str(row[0]))


def _bodies(connection: Connection, run: UUID) -> list[str]:
    rows = connection.execute(
        "SELECT body FROM runtime_journalentry WHERE run_id = %s ORDER BY position", (run,)
    )
    return [str(body) for (body,) in rows.fetchall()]


def _pace(bodies: list[str], kind: str) -> Spread:
    """Milliseconds from an entry that ends with a `kind` of event to the next."""
    entries = [json.loads(body) for body in bodies]
    return spread(
        [
            1000 * (_at(after) - _at(before)).total_seconds()
            for before, after in itertools.pairwise(entries)
            if before["events"][-1]["type"] == kind
        ]
    )


def _at(entry: dict[str, str]) -> datetime:
    return datetime.fromisoformat(entry["at"])


def _growth(what: str, relay: list[list[str]], kind: str, most: float | None) -> Line:
    """The median of a run's last steps to that of the first of the run that begins meanwhile, for each pair."""
    first = [_pace(bodies[EARLY:][:WINDOW], kind).median for bodies in relay[1:]]
    last = [_pace(bodies[-WINDOW:], kind).median for bodies in relay[:-1]]
    return Line(
        what=what,
        value=ratios(last, first),
        unit=" ×",
        most=most,
        ours=spread(last).text(" ms"),
        reference=spread(first).text(" ms"),
    )


def _bytes(connection: Connection, *tables: str) -> int:
    """Of tables with their partitions, indexes and what is stored beside them."""
    (row,) = connection.execute(
        """
        SELECT coalesce(sum(pg_total_relation_size(part.relid)), 0)::bigint
        FROM unnest(%s::text[]) AS name,
            LATERAL (SELECT relid FROM pg_partition_tree(name::regclass)
                UNION SELECT name::regclass) AS part
        """,
        (list(tables),),
    ).fetchall()
    return int(str(row[0]))


def _bare(connection: Connection, bodies: list[str]) -> tuple[UUID, int]:
    """The same texts in a bare table: its run there, and the bytes."""
    connection.execute("DROP TABLE IF EXISTS loop_entry, loop_run")
    for statement in TABLES.split(";"):
        connection.execute(statement)
    run = uuid4()
    connection.execute("INSERT INTO loop_run VALUES (%s, 0)", (run,))
    for position, body in enumerate(bodies, start=1):
        with connection.transaction():
            connection.execute(INSERT, (run, position, body))
            connection.execute(UPDATE, (position, run))
    return run, _bytes(connection, "loop_entry", "loop_run")


def _loads(what: str, connection: Connection, run: UUID) -> Line:
    """To the verified state at the last entry, against reading and decoding the same texts."""
    from runtime import continuations, journal

    (row,) = connection.execute(
        "SELECT position, head, base FROM runtime_run WHERE id = %s", (run,)
    ).fetchall()
    position, head, base = int(str(row[0])), str(row[1]), int(str(row[2]))
    kept = connection.execute("SELECT body FROM runtime_continuation WHERE run_id = %s", (run,))
    bare, _ = _bare(connection, _bodies(connection, run) + [str(text) for (text,) in kept])

    def ours() -> None:
        known, _ = continuations.load(connection, run, base)
        journal.replay(connection, known, position=position, head=head)

    def theirs() -> None:
        rows = connection.execute(
            "SELECT body FROM loop_entry WHERE run_id = %s ORDER BY position", (bare,)
        )
        for (body,) in rows.fetchall():
            json.loads(str(body))

    pairs = [(_timed(theirs), _timed(ours)) for _ in range(LOADS)]
    mine, others = [one for _, one in pairs], [one for one, _ in pairs]
    return Line(
        what=what,
        value=ratios(mine, others),
        unit=" ×",
        most=3,
        ours=f"{number(spread(mine).median)} ms",
        reference=f"{number(spread(others).median)} ms",
    )


def _timed(act: Callable[[], None]) -> float:
    """Milliseconds."""
    began = time.perf_counter()
    act()
    return 1000 * (time.perf_counter() - began)


def _climb(desk: Desk, connection: Connection, gates: int) -> tuple[int, int]:
    """Bytes of journal and continuation at the last gate, and of what calls were given and gave back."""
    run = desk.start("climber", {"turns": gates, "given": TEXT, "got": TEXT})
    for number_ in range(gates):
        _until_suspended(desk, run)
        if number_ == gates - 1:
            break
        desk.approve(run)
    (row,) = connection.execute(
        """
        SELECT (SELECT sum(length(body)) FROM runtime_journalentry WHERE run_id = %(run)s)
            + (SELECT sum(length(body)) FROM runtime_continuation WHERE run_id = %(run)s)
        """,
        {"run": run},
    ).fetchall()
    desk.approve(run)
    until_ended(desk.look, [run])
    return int(str(row[0])), gates * 2 * TEXT


def _until_suspended(desk: Desk, run: UUID) -> None:
    deadline = time.monotonic() + PATIENCE
    while not desk.waits(run):
        assert desk.look([run])[run] not in ENDS, f"run {run} ended"
        assert time.monotonic() < deadline, f"run {run} does not come to its gate"
        time.sleep(0.003)
