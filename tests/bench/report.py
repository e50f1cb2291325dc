"""Write docs/explanation/performance.md: the machine, the findings of the run, and the part kept by hand."""

import os
import platform
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import psutil

from config.env.environment import ROOT
from tests.bench.figures import Finding, markdown

PAGE = ROOT / "docs/explanation/performance.md"
Loads = tuple[float, float, float]
NOTES = "<!-- what follows is written by hand and kept by `make bench` -->"
HEAD = """# Performance

`make bench` measures the engine against bare references, and writes figures with a goal here, up to the marked
line. All are ratios within the same minutes. The median decides on `reached` or `missed`; the spread is from the 5th to
the 95th percentile, or between extremes below 20 values.
"""


def write(
    findings: Sequence[Finding],
    *,
    load_before: Loads,
    seconds: float,
    quick: bool,
    others_stay: bool,
) -> None:
    """Replace everything above the notes, which stay; with `others_stay` only the sections of these findings.

    A finding without a goal is printed alone.
    """
    findings = [one for one in findings if any(line.goal for line in one.lines)]
    before, _, notes = PAGE.read_text().partition(NOTES)
    if others_stay:
        run = _run(load_before, seconds, quick)
        own = {one.title: f"{markdown(one)}\nMeasured apart: {run}.\n" for one in findings}
        parts = [*(_sections(before) | own).values()]
    else:
        parts = [HEAD, _machine(load_before, seconds, quick), *map(markdown, findings)]
    PAGE.write_text("\n".join(parts) + f"\n{NOTES}{notes}")


def _sections(text: str) -> dict[str, str]:
    """Return the sections by their titles, and the part before them."""
    parts = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    return {part.partition("\n")[0].removeprefix("## "): f"{part.rstrip()}\n" for part in parts}


def _run(load_before: Loads, seconds: float, quick: bool) -> str:
    loads = ", ".join(f"{one:.1f}" for one in load_before)
    how = "small numbers (`--quick`)" if quick else "full numbers"
    when = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    return f"{when}, {how}, {seconds:.0f} s, load {loads}"


def _machine(load_before: Loads, seconds: float, quick: bool) -> str:
    memory = psutil.virtual_memory().total / 2**30
    system = f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    return f"""## The machine

- {_run(load_before, seconds, quick)}
- {os.cpu_count()} cores ({_processor()}), {memory:.0f} GB of memory, {system}
- the embedded servers; Postgres with `fsync`, `synchronous_commit` and `full_page_writes`
"""


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
