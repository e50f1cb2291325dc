"""A run of 50 gates: the bytes that are kept of it at the last one, to what its calls were given and gave back."""

import time
from uuid import UUID

from tests.bench.desk import ENDS, TIMEOUT_SECONDS, Desk, until_ended
from tests.bench.figures import Finding, Line, number, one
from tests.support.site import Site

GATES, TEXT = 50, 2000
KEPT = """
    SELECT (SELECT sum(octet_length(body) + coalesce(octet_length(packed), 0))
            FROM runtime_journalentry WHERE run_id = %(run)s)
        + (SELECT coalesce(sum(octet_length(body)), 0) FROM runtime_continuation WHERE run_id = %(run)s)
"""


def measure(site: Site, *, quick: bool) -> Finding:
    """Measure the bytes of journal and continuation."""
    gates = 10 if quick else GATES
    desk = Desk()
    with site.workers(1):
        run = desk.start("climber", {"turns": gates, "given": TEXT, "got": TEXT})
        for _ in range(gates - 1):
            _until_suspended(desk, run)
            desk.approve(run)
        _until_suspended(desk, run)
        with site.connect() as connection:
            ((kept,),) = connection.execute(KEPT, {"run": run}).fetchall()
        desk.approve(run)
        until_ended(desk.look, [run])
    bytes_, payload = int(str(kept)), gates * 2 * TEXT
    return Finding(
        title=f"A run of {gates} gates",
        lines=(
            Line(
                what="bytes that are kept of it to its payload",
                value=one(bytes_ / payload),
                unit=" ×",
                most=5,
                ours=f"{number(bytes_ / 1024)} KB",
                reference=f"{number(payload / 1024)} KB",
            ),
        ),
    )


def _until_suspended(desk: Desk, run: UUID) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not desk.waits(run):
        assert desk.look([run])[run] not in ENDS, f"run {run} ended"
        assert time.monotonic() < deadline, f"run {run} does not come to its gate"
        time.sleep(0.003)
