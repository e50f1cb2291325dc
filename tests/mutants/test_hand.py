"""The tables of mutants are about this code: `python -m tests.mutants` (make mutants) tries them."""

import re

import pytest

from config.env.environment import ROOT
from tests.docs.pages import functions_of
from tests.mutants import core
from tests.mutants.equivalent import EQUIVALENT
from tests.mutants.tried import ROWS, Row


@pytest.mark.parametrize("row", ROWS, ids=map(str, ROWS))
def test_the_old_text_of_a_mutant_occurs_once(row: Row) -> None:
    assert (ROOT / row.file).read_text().count(row.old) == 1
    assert row.new != row.old
    assert row.tests
    files = [path.partition("::")[0] for path in row.tests]
    assert [path for path in files if not (ROOT / path).exists()] == []


def test_every_equivalent_mutant_can_be_made() -> None:
    assert set(EQUIVALENT) == set().union(*map(core.equivalences_of, core.everything()))


def test_every_upstream_bug_names_its_test_and_mutants() -> None:
    table = (ROOT / "docs/explanation/upstream-bugs.md").read_text().partition("|---|")[2]
    lines = [line.split(" | ") for line in table.splitlines() if line.startswith("| ")]
    names = [line[0].removeprefix("| ") for line in lines]
    assert len(names) == len(set(names)) == 30
    for line in lines:
        shown = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", line[-1])
        assert shown or "cannot occur: " in line[-1], line[0]
        assert [name for path, name in shown if name not in functions_of(path)] == []
    assert {bug for row in ROWS for bug in row.bugs} <= set(names)
    assert sum(bool(row.bugs) for row in ROWS) >= 15
