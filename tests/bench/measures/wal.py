"""The WAL of a flow by relation: which heap, index and record takes how many bytes, images of pages left out."""

import re
from collections import Counter

from tests.bench.figures import Finding, Line, number
from tests.bench.sides.desk import Desk
from tests.bench.sides.driver import AT_ONCE, Driver, driving
from tests.bench.sides.workload import newcomers
from tests.bench.site import Site

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


def measure(site: Site, *, quick: bool) -> Finding:
    flows = 100 if quick else 400
    with driving(site) as driver, site.connect() as connection:
        desk, worker = Desk(), site.worker()
        _flows(driver, desk, AT_ONCE)  # until everything is imported and prepared
        connection.execute("CREATE EXTENSION IF NOT EXISTS pg_walinspect")
        connection.execute("CHECKPOINT")
        ((begin,),) = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchall()
        _flows(driver, desk, flows)
        ((end,),) = connection.execute("SELECT pg_current_wal_flush_lsn()::text").fetchall()
        names = {str(node): name for node, name in connection.execute(RELATIONS).fetchall()}
        records = connection.execute(RECORDS, (begin, end)).fetchall()
        site.end(worker)
    sizes: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for manager, kind, length, blocks in records:
        found = re.search(r"rel \d+/\d+/(\d+)", str(blocks or ""))
        relation = re.sub(r"_\d{4}_\d\d", "", str(names.get(found[1], found[1]) if found else "-"))
        sizes[f"{relation} {manager} {kind}"] += int(str(length))
        counts[f"{relation} {manager} {kind}"] += 1
    kinds = [("everything", sizes.total(), counts.total())]
    kinds += [(what, size, counts[what]) for what, size in sizes.most_common(SHOWN)]
    lines = [
        Line(what, [size / flows], " B", ours=f"{number(count / flows)} records")
        for what, size, count in kinds
    ]
    note = NOTE.format(flows=flows, at_once=AT_ONCE)
    return Finding("Where the WAL of a flow goes", lines, note)


def _flows(driver: Driver, side: Desk, count: int) -> None:
    started = driver.start(side, "onboard", newcomers(count), AT_ONCE)
    driver.finish(side, side.pending(started.runs), AT_ONCE)
