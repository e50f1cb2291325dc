"""Reads the hand-made mutants of hand.txt."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TABLE = Path(__file__).with_name("hand.txt")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """`old` becomes `new` in `file`, and a test in one of `tests` fails. `bugs` are such bugs of other projects."""

    file: str
    tests: tuple[str, ...]
    old: str
    new: str
    bugs: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.file}: {self.old.strip()} -> {self.new.strip()}"


def rows() -> Iterator[Row]:
    """Every mutant of the table, in its order."""
    file, tests = "", tuple[str, ...]()
    for line in TABLE.read_text("utf-8").splitlines():
        if line.startswith("    "):
            old, new, *bugs = ast.literal_eval(f"({line.strip()})")
            named = tuple(bugs[0].split(", ")) if bugs else ()
            yield Row(file=file, tests=tests, old=old, new=new, bugs=named)
        elif line and not line.startswith("#"):
            file, *paths = line.split()
            tests = tuple(paths)


ROWS = tuple(rows())
