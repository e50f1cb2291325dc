"""The WAL of a flow by relation: which heap, index and record takes how many bytes, images of pages left out."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from tests.bench.figures import Finding, Line, number, one
from tests.bench.sides.desk import Desk
from tests.bench.sides.driver import (
    AT_ONCE,
    Driver,
    Ours,
    driving,
)
from tests.bench.sides.workload import newcomers
from tests.support.site import Site

SHOWN = 60
RECORDS = """
    SELECT resource_manager, record_type, record_length - coalesce(fpi_length, 0), block_ref
    FROM pg_get_wal_records_info(%s, %s)
"""
RELATIONS = """
    SELECT pg_relation_filenode(oid)::bigint, relname FROM pg_class WHERE pg_relation_filenode(oid) IS NOT NULL
"""
NOTE = (
    "Of {flows} flows, {at_once} at once, after a checkpoint: bytes of records without images of pages, and how many of"
    " them, both of one flow. Postgres pads each record to 8 bytes, which is not in them. `-` is no relation's."
)
_RELATION = re.compile(r"rel \d+/\d+/(\d+)")

Record = Sequence[object]


def measure(site: Site, *, quick: bool) -> Finding:
    """Every relation and kind of record, those with the most bytes first."""
    flows = 100 if quick else 400
    with driving(site) as driver, site.untidied():
        side, sweeper, worker = Ours(Desk()), site.sweeper(), site.worker()
        _flows(driver, side, AT_ONCE)  # until everything is imported and prepared
        with site.connect() as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS pg_walinspect")
            connection.execute("CHECKPOINT")
            begin = _position(connection.execute("SELECT pg_current_wal_insert_lsn()::text"))
            _flows(driver, side, flows)
            end = _position(connection.execute("SELECT pg_current_wal_flush_lsn()::text"))
            names = {row[0]: row[1] for row in connection.execute(RELATIONS).fetchall()}
            bytes_of, counts = sums(connection.execute(RECORDS, (begin, end)).fetchall(), names)
        site.end(sweeper, worker)
    lines = [_line("everything", bytes_of.total(), counts.total(), flows)]
    lines += [
        _line(" ".join(key), size, counts[key], flows) for key, size in bytes_of.most_common(SHOWN)
    ]
    note = NOTE.format(flows=flows, at_once=AT_ONCE)
    return Finding(title="Where the WAL of a flow goes", lines=tuple(lines), notes=(note,))


def sums(
    records: Iterable[Record], names: dict[object, object]
) -> tuple[Counter[tuple[str, ...]], Counter[tuple[str, ...]]]:
    """Bytes and numbers of the records by relation, resource manager and type."""
    bytes_of: Counter[tuple[str, ...]] = Counter()
    counts: Counter[tuple[str, ...]] = Counter()
    for manager, kind, length, blocks in records:
        found = _RELATION.search(str(blocks or ""))
        relation = names.get(int(found[1]), found[1]) if found else "-"
        key = (re.sub(r"_\d{4}_\d\d", "", str(relation)), str(manager), str(kind))
        bytes_of[key] += int(str(length))
        counts[key] += 1
    return bytes_of, counts


def _flows(driver: Driver, side: Ours, count: int) -> None:
    started = driver.start(side, "onboard", newcomers(count), AT_ONCE)
    driver.finish(side, side.pending(started.runs), AT_ONCE)


def _position(rows: Iterable[Record]) -> str:
    return str(next(iter(rows))[0])


def _line(what: str, size: int, count: int, flows: int) -> Line:
    return Line(
        what=what, value=one(size / flows), unit=" B", ours=f"{number(count / flows)} records"
    )
