"""The page of a run of 5,000 steps against that of one of 100: its first paint, a refresh, and a step that is opened.

Both runs wait at a gate. The requests are served in this process, so their times are those of the view.
"""

import time
from collections.abc import Mapping
from uuid import UUID

from django.contrib.auth.models import User
from django.test import Client

from tests.bench.figures import Finding, Line, ratio
from tests.bench.sides.desk import ADA, Desk
from tests.bench.site import Site
from tests.support.people import until

SHORT, LONG = 50, 2_500  # turns of two steps
ROUNDS = 20
WITHIN_SECONDS = 1200.0
MOST = 1.5
HOST = {"Host": "127.0.0.1:8000"}
REFRESH = HOST | {"HX-Request": "true"}


def measure(site: Site, *, quick: bool) -> Finding:
    """Read both pages so often; with `quick` a run of 1,000 steps and fewer rounds."""
    long, rounds = (500, 5) if quick else (LONG, ROUNDS)
    desk, worker = Desk(), site.worker()
    runs = {turns: _started(desk, turns) for turns in (SHORT, long)}
    site.end(worker)
    client = Client()
    client.force_login(User.objects.get(username=ADA.person))
    lines: list[Line] = []
    _milliseconds(client, f"/runs/{runs[SHORT]}/?whole=1", HOST)  # imports and compiles
    for what, address, headers in (
        ("first paint", "", HOST),
        ("refresh", "", REFRESH),
        ("a step opened", "?step=0/c7.0", REFRESH | {"HX-Target": "step"}),
    ):
        first, times = {}, {}
        for turns, run in runs.items():
            taken = [
                _milliseconds(client, f"/runs/{run}/{address}", headers) for _ in range(rounds + 1)
            ]
            first[turns], times[turns] = taken[:1], taken[1:]
        label = f"{what}: {2 * long:,} steps / {2 * SHORT} steps"
        lines.append(ratio(label, times[long], times[SHORT], " ms", most=MOST))
        lines.append(ratio("  the first one in a process", first[long], first[SHORT], " ms"))
    return Finding(
        "The page of a long run", lines, "Times of the view, without the network and the browser."
    )


def _started(desk: Desk, turns: int) -> UUID:
    run = desk.start("marathon", {"first": turns, "last": turns, "gates": 1})
    until(lambda: desk.look([run])[run] == "suspended" or None, "the run to wait", WITHIN_SECONDS)
    return run


def _milliseconds(client: Client, address: str, headers: Mapping[str, str]) -> float:
    began = time.perf_counter()
    answer = client.get(address, headers=dict(headers))
    took = 1000 * (time.perf_counter() - began)
    assert answer.status_code == 200, answer.content[:300]
    return took
