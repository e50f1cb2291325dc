"""Results of a measure: ratios with their number, median and spread, as text and as Markdown."""

import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Some numbers of one kind, at least one: how many, their median, and where most of them lie."""

    n: int
    median: float
    low: float
    high: float

    def text(self, unit: str = "") -> str:
        """`median (low to high, n=…)`, with the unit after the median."""
        return (
            f"{number(self.median)}{unit} ({number(self.low)} to {number(self.high)}, n={self.n})"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One figure. `goal` is `most` or `least` with its bound, none for a figure without a goal.

    `ours` and `reference` name the compared things, in words with units.
    """

    what: str
    value: Spread
    unit: str = ""
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
        if self.most is None and self.least is None:
            return ""
        missed = (self.most is not None and self.value.median > self.most) or (
            self.least is not None and self.value.median < self.least
        )
        return "missed" if missed else "reached"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one measure: its lines, and the notes needed to read them correctly."""

    title: str
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = ()
    seconds: float = field(default=0.0)


def spread(values: Sequence[float]) -> Spread:
    """The median with the 5th and 95th percentile; the extremes where there are fewer than 20 values."""
    ordered = sorted(values)
    if len(ordered) < 20:
        low, high = ordered[0], ordered[-1]
    else:
        low, high = percentile(ordered, 5), percentile(ordered, 95)
    return Spread(n=len(ordered), median=statistics.median(ordered), low=low, high=high)


def one(value: float) -> Spread:
    """A figure that was taken once."""
    return spread([value])


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Return the ratio of each round of ours to the neighbouring round of theirs."""
    return spread([mine / other for mine, other in zip(ours, theirs, strict=True)])


def percentile(values: Sequence[float], percent: float) -> float:
    """The nearest rank of values that need not be in order."""
    ordered = sorted(values)
    rank = round(percent / 100 * (len(ordered) - 1))
    return ordered[rank]


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
    say(f"\n{finding.title}  [{finding.seconds:.0f} s]")
    for line in finding.lines:
        say(f"  {line.what:58} {line.value.text(line.unit):42} {line.goal:8} {line.verdict}")
        if line.ours or line.reference:
            say(f"  {'':58} ours {line.ours}; reference {line.reference}")
    for note in finding.notes:
        say(f"  {note}")


def markdown(finding: Finding) -> str:
    """A section of docs/explanation/performance.md."""
    rows = [
        f"## {finding.title}",
        "",
        "| figure | median (spread, n) | goal | | ours | reference |",
        "|---|---|---|---|---|---|",
    ]
    for line in finding.lines:
        cells = (
            *(line.what, line.value.text(line.unit), line.goal, line.verdict),
            *(line.ours, line.reference),
        )
        rows.append("| " + " | ".join(cells) + " |")
    for note in finding.notes:
        rows += ["", note]
    return "\n".join(rows) + "\n"


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
