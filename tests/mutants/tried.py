"""Tries the hand-made mutants, one after the other, in a copy of the tree: a test must see each.

Those of hand.txt break the code, those of settings.txt each make a setting do nothing.
"""

import ast
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutants import trials

TABLE = Path(__file__).with_name("hand.txt")
SETTINGS_TABLE = Path(__file__).with_name("settings.txt")
WITHIN = 120.0  # seconds: a test that takes longer does not end, and saw it


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """`old` becomes `new` in `file`, and a test in one of `tests` fails. `bugs` are such bugs of other projects.

    `setting` is the one that then does nothing, empty for other mutants.
    """

    file: str
    tests: tuple[str, ...]
    old: str
    new: str
    bugs: tuple[str, ...] = ()
    setting: str = ""

    def __str__(self) -> str:
        return f"{self.file}: {self.old.strip()} -> {self.new.strip()}"


def rows(table: Path) -> Iterator[Row]:
    setting, file, tests = "", "", tuple[str, ...]()
    for line in table.read_text("utf-8").splitlines():
        if line.startswith("    "):
            old, new, *bugs = ast.literal_eval(f"({line.strip()})")
            named = tuple(bugs[0].split(", ")) if bugs else ()
            yield Row(file=file, tests=tests, old=old, new=new, bugs=named, setting=setting)
        elif line and line[0] not in "#- ":
            words = line.split()
            setting = words.pop(0) if table == SETTINGS_TABLE else ""
            file, *paths = words
            tests = tuple(paths)


ROWS = (*rows(TABLE), *rows(SETTINGS_TABLE))


def main() -> bool:
    """Try every mutant whose line has MUTANT in it, and say which ones live. Return whether none does."""
    wanted = os.environ.get("MUTANT", "")
    rows = [row for row in ROWS if wanted in str(row)]
    assert rows, f"no line has {wanted!r} in it"
    began_at = time.monotonic()
    with trials.copy() as folder:
        files = sorted({path.partition("::")[0] for row in rows for path in row.tests})
        assert _passes(folder, files, within=20 * WITHIN), "the tests fail as it is"
        living = [row for row in rows if _lives(folder, row)]
    for row in living:
        sys.stdout.write(f"lives: {row}; {' '.join(row.tests)} do not see it\n")
    sys.stdout.write(
        f"FIGURES hand-made mutants: {len(rows)} of {len(ROWS)} tried, {len(rows) - len(living)} red,"
        f" {len(living)} live, {time.monotonic() - began_at:.0f} s\n"
    )
    sys.stdout.flush()
    return not living


def _lives(folder: Path, row: Row) -> bool:
    text = (folder / row.file).read_text()
    assert text.count(row.old) == 1, str(row)
    with trials.changed(folder, row.file, text.replace(row.old, row.new)):
        return _passes(folder, row.tests, within=WITHIN)


def _passes(folder: Path, tests: Sequence[str], *, within: float) -> bool:
    code, said = trials.outcome(folder, tests, within=within)
    assert code in (0, 1), said  # else they neither passed nor failed
    return code == 0
