"""Computes pictures of days: a bar for each day, with a part for each series, and the same numbers as a table.

The template draws the bars as SVG without styles of its own, so they follow the theme and the width of the page.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

HEIGHT, SLOT, GAP = (
    100.0,
    10.0,
    2.0,
)  # units of the drawing: its height, and the width of a day with its gap
STEPS = (1, 1.5, 2, 3, 4, 5, 6, 8, 10)
COLOURS = 6  # classes c0 to c5


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One part of each bar: the key of its values, its name for people, and its class of colour."""

    key: str
    label: str
    colour: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BarPart:
    """A part of a bar. All numbers are in units of the drawing; `url` lists the rows that it counts."""

    x: float
    y: float
    width: float
    height: float
    colour: str
    title: str
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DayNumber:
    """A number of the table as text, with the address of the rows that it counts; both empty for 0."""

    text: str
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """A day of the table: a cell for each series."""

    day: date
    cells: tuple[DayNumber, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A picture: `width` of the drawing in units, the number at its `top` as text, and the table."""

    width: float
    top: str
    days: tuple[date, ...]
    series: tuple[Series, ...]
    segments: tuple[BarPart, ...]
    rows: tuple[TableRow, ...]


def list_days(since: date, until: date) -> tuple[date, ...]:
    """Return the days from `since` to before `until`."""
    return tuple(since + timedelta(days=number) for number in range((until - since).days))


def select_largest(
    values: Mapping[date, Mapping[str, float]], *, other: str, label: Callable[[str], str] = str
) -> tuple[Series, ...]:
    """Return the series with the largest sums, the largest first, and one named `other` if there are more."""
    sums: dict[str, float] = {}
    for parts in values.values():
        for key, value in parts.items():
            sums[key] = sums.get(key, 0) + value
    ordered = sorted(sums, key=lambda key: (-sums[key], key))
    keys = ordered if len(ordered) <= COLOURS else [*ordered[: COLOURS - 1], other]
    return tuple(
        Series(key=key, label=key if key == other else label(key), colour=f"c{number}")
        for number, key in enumerate(keys)
    )


def merge_others(
    values: Mapping[date, Mapping[str, float]], series: Sequence[Series], *, other: str
) -> dict[date, dict[str, float]]:
    """Return the values with those of no series added up under `other`."""
    keys = {part.key for part in series}
    days: dict[date, dict[str, float]] = {}
    for day, parts in values.items():
        sums = days.setdefault(day, {})
        for key, value in parts.items():
            name = key if key in keys else other
            sums[name] = sums.get(name, 0) + value
    return days


def draw(
    days: Sequence[date],
    series: Sequence[Series],
    values: Mapping[date, Mapping[str, float]],
    *,
    text: Callable[[float], str],
    url: Callable[[date, str], str],
    stacked: bool = True,
) -> Chart:
    """Draw a bar for each day. `text` writes a value, `url` is the list of the rows that a value counts.

    The parts of a bar stand on each other, or with `stacked` false all on the ground, so the largest comes first.
    """
    used = tuple(part for part in series if any(values.get(day, {}).get(part.key) for day in days))
    height_of = sum if stacked else max
    top = _round_up(
        max((height_of(values[day].values()) for day in days if values.get(day)), default=0)
    )
    segments: list[BarPart] = []
    rows: list[TableRow] = []
    for number, day in enumerate(days):
        y, cells = HEIGHT, list[DayNumber]()
        for line in used:
            value = values.get(day, {}).get(line.key, 0)
            if not value:
                cells.append(DayNumber(text="", url=""))
                continue
            height = HEIGHT * value / top
            y = (y if stacked else HEIGHT) - height
            address, words = url(day, line.key), text(value)
            cells.append(DayNumber(text=words, url=address))
            segments.append(
                BarPart(
                    x=number * SLOT + GAP / 2,
                    y=round(y, 2),
                    width=SLOT - GAP,
                    height=round(height, 2),
                    colour=line.colour,
                    title=f"{day.isoformat()}: {line.label}, {words}",
                    url=address,
                )
            )
        rows.append(TableRow(day=day, cells=tuple(cells)))
    return Chart(
        width=len(days) * SLOT,
        top=text(top) if used else "",
        days=tuple(days),
        series=used,
        segments=tuple(segments),
        rows=tuple(row for row in reversed(rows) if any(cell.text for cell in row.cells)),
    )


def _round_up(value: float) -> float:
    """Return the next round number; 1 for 0."""
    if value <= 0:
        return 1
    power = 1.0
    while power * 10 <= value:
        power *= 10
    while power > value:
        power /= 10
    return next(step * power for step in STEPS if step * power >= value)
