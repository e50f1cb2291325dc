"""The bound of each figure, which may only fall, and its goal: `bounds.txt`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

TABLE = Path(__file__).with_name("bounds.txt")
AT_LEAST = ">"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The limit and the goal of a figure, None without one; its value must be at most the limit, or at least."""

    limit: float | None
    goal: float | None
    is_minimum: bool = False

    def allows(self, value: float) -> bool:
        if self.limit is None:
            return True
        return value >= self.limit if self.is_minimum else value <= self.limit


def read() -> dict[str, Bound]:
    """Return all bounds by the name of their figure."""
    bounds = {}
    for line in _rows():
        name, limit, goal = (cell.strip() for cell in line.split("|"))
        bounds[name] = Bound(
            limit=_number(limit), goal=_number(goal), is_minimum=limit.startswith(AT_LEAST)
        )
    return bounds


def write(bounds: Mapping[str, Bound]) -> None:
    """Replace the rows of the table, and leave the comment at its head."""
    lines = TABLE.read_text("utf-8").splitlines()
    head = [line for line in lines if line.startswith("#")]
    rows = [
        f"{name:44} | {AT_LEAST * bound.is_minimum + text_of(bound.limit):>9} | {text_of(bound.goal):>9}".rstrip()
        for name, bound in bounds.items()
    ]
    TABLE.write_text("\n".join([*head, *rows, ""]), "utf-8")


def with_limits(bounds: Mapping[str, Bound], figures: Mapping[str, float]) -> dict[str, Bound]:
    """Return the bounds of these figures: the goal where it is reached, else the figure."""
    return {
        name: bound
        if bound.limit is None or name not in figures
        else replace(bound, limit=_limit(bound, figures[name]))
        for name, bound in bounds.items()
    }


def text_of(number: float | None) -> str:
    return "" if number is None else f"{number:g}" if number < 1000 else f"{number:.0f}"


def _limit(bound: Bound, value: float) -> float:
    if bound.goal is None:
        return value
    return min(value, bound.goal) if bound.is_minimum else max(value, bound.goal)


def _rows() -> Iterator[str]:
    for line in TABLE.read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            yield line


def _number(text: str) -> float | None:
    return float(text.removeprefix(AT_LEAST)) if text else None
