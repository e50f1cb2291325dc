"""Results of a measure: figures with their number, median and spread, as text and as Markdown."""

import statistics
import sys
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass


@dataclass(frozen=True, slots=True)
class Line:
    """One figure, of one value or more. `goal` is `most` or `least` with its bound, none for a figure without a goal.

    `ours` and `reference` name the compared things, in words with units.
    """

    what: str
    values: Sequence[float]
    unit: str = ""
    _: KW_ONLY
    most: float | None = None
    least: float | None = None
    ours: str = ""
    reference: str = ""

    @property
    def goal(self) -> str:
        if self.most is not None:
            return f"≤ {number(self.most)}"
        return "" if self.least is None else f"≥ {number(self.least)}"

    @property
    def verdict(self) -> str:
        """`reached`, `missed`, or nothing where there is no goal."""
        median = statistics.median(self.values)
        if self.most is not None:
            return "missed" if median > self.most else "reached"
        if self.least is not None:
            return "missed" if median < self.least else "reached"
        return ""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one measure: its lines, and the note needed to read them correctly."""

    title: str
    lines: Sequence[Line]
    note: str = ""


def ratio(
    what: str, ours: Sequence[float], theirs: Sequence[float], unit: str, **goal: float
) -> Line:
    """Return the ratio of each round of ours to the next one of theirs, or of the sums if one of theirs is 0."""
    if all(theirs):
        values = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    else:
        values = [sum(ours) / sum(theirs) if any(theirs) else 0.0]
    return Line(what, values, " ×", ours=median(ours, unit), reference=median(theirs, unit), **goal)


def median(values: Sequence[float], unit: str = "") -> str:
    return f"{number(statistics.median(values))}{unit}"


def spread(values: Sequence[float], unit: str = "") -> str:
    """`median (low–high, n=…)`: the 5th to the 95th percentile, or the extremes of fewer than 20 values."""
    if len(values) == 1:
        return f"{median(values, unit)} (n=1)"
    low, high = min(values), max(values)
    if len(values) >= 20:
        low, high = percentile(values, 5), percentile(values, 95)
    return f"{median(values, unit)} ({number(low)}–{number(high)}, n={len(values)})"


def percentile(values: Sequence[float], percent: int) -> float:
    """Of one value or more."""
    if len(values) == 1:
        return values[0]
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def number(value: float) -> str:
    """Three significant digits."""
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.2f}" if abs(value) >= 1 else f"{value:.3f}"


def show(finding: Finding) -> None:
    """Print the figures on the terminal."""
    say(f"\n{finding.title}")
    for line in finding.lines:
        say(f"  {line.what:58} {spread(line.values, line.unit):42} {line.goal:8} {line.verdict}")
        if line.ours or line.reference:
            say(f"  {'':58} ours {line.ours}; reference {line.reference}")
    say(f"  {finding.note}")


def markdown(finding: Finding) -> str:
    """Return a section of docs/explanation/performance.md: the lines with a goal."""
    lines = [line for line in finding.lines if line.goal]
    columns = {
        "figure": [line.what for line in lines],
        "median (spread, n)": [spread(line.values, line.unit) for line in lines],
        "goal": [f"{line.goal}, {line.verdict}" if line.goal else "" for line in lines],
        "ours": [line.ours for line in lines],
        "reference": [line.reference for line in lines],
    }
    filled = {head: cells for head, cells in columns.items() if any(cells)}
    table = [tuple(filled), *zip(*filled.values(), strict=True)]
    rows = [" | ".join(cells).rstrip() for cells in table]
    rows.insert(1, "|".join("---" for _ in filled))
    text = "\n".join([f"## {finding.title}\n", *rows])
    return text + "\n" + (f"\n{finding.note}\n" if finding.note else "")


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
