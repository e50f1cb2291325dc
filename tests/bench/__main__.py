"""`make bench`: every measure against its references in one run, as ratios.

`python -m tests.bench --only engine --quick` takes one of them, on a small number: what to run after each change.
"""

import argparse
import importlib
import os
import time

import django

from tests.bench import report, site
from tests.bench.figures import Finding, say, show

# In the order in which they are taken: those that leave many rows behind come last.
MEASURES = {
    "engine": "tools that do nothing against a bare Celery loop: speed, cost of a flow, long runs, bytes",
    "flows": "the same with a directory and mail: hr_onboarding_single",
    "steps": "steps a second against bare transactions",
    "waiting": "many runs that wait for slow models, on one worker process (with --quick: if named)",
    "aap": "requests of agents outside against Django views written by hand; 1,000 that wait at once",
    "run_page": "the page of a run of 5,000 steps against that of one of 100",
    "desk": "a hundred mixed requests, cleared by keyboard in a browser",
    "phone": "the important one of a hundred requests, decided on a phone",
    "due": "a million timers that ran out, two sweepers",
    "inbox": "the inbox with a million pending, decisions beside them, 100,000 suspended runs",
}


def main() -> None:
    chosen = _arguments()
    left_out = {"waiting"} if chosen.quick else set[str]()
    names = chosen.only or [name for name in MEASURES if name not in left_out]
    began = time.monotonic()
    load = os.getloadavg()
    findings: list[Finding] = []
    with site.running() as place:
        django.setup()
        for name in names:
            measure = importlib.import_module(f"tests.bench.measures.{name}").measure
            findings.append(measure(place, quick=chosen.quick))
            show(findings[-1])
            took = time.monotonic() - began
            say(f"\n{took:.0f} s")
            if chosen.write:  # each time, so that an interrupted run keeps its results
                report.write(
                    findings,
                    load_before=load,
                    seconds=took,
                    quick=chosen.quick,
                    others_stay=bool(chosen.only),
                )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench",
        description="Measure the engine against bare references on this machine; every figure is a ratio.",
        epilog="\n".join(f"  {name:12} {what}" for name, what in MEASURES.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--only", action="append", choices=MEASURES, metavar="NAME", help="may be repeated")
    add("--quick", action="store_true", help="small numbers, three minutes in all")
    add(
        "--write",
        action="store_true",
        help="write docs/explanation/performance.md; with --only those sections",
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
