"""The tables of mutants are about this code: `python -m tests.mutants` (make mutants) tries them."""

from functools import cache

import pytest

from config.env.environment import ROOT
from tests.docs.guarantees import read_table
from tests.docs.pages import functions_of
from tests.mutants import core, settings, trials
from tests.mutants.equivalent import EQUIVALENT
from tests.mutants.tried import ROWS, Row


def test_the_old_text_of_each_mutant_occurs_once() -> None:
    text = cache(lambda file: (ROOT / file).read_text())
    assert [str(row) for row in ROWS if text(row.file).count(row.old) != 1] == []
    assert [str(row) for row in ROWS if row.new == row.old or not row.tests] == []
    files = {path.partition("::")[0] for row in ROWS for path in row.tests}
    assert [path for path in sorted(files) if not (ROOT / path).exists()] == []


def test_every_equivalent_mutant_can_be_made() -> None:
    assert set(EQUIVALENT) == set().union(*map(core.equivalences_of, core.everything()))


def test_every_mutant_names_a_known_upstream_bug() -> None:
    bugs = {promise.partition(":")[0] for promise in read_table()["bugs"][""]}
    assert {bug for row in ROWS for bug in row.bugs} <= bugs
    assert sum(bool(row.bugs) for row in ROWS) >= 15


@pytest.mark.slow
def test_the_tests_of_the_core_load_without_django() -> None:
    """Otherwise no mutant of the core is tried."""
    words = (*core.PURE, "--collect-only", *core.likeliest_first(""))
    code, output = trials.outcome(ROOT, words, within=120.0)
    assert code == 0, output


# Settings


ENTRIES: dict[str, Row] = {row.setting: row for row in ROWS if row.setting}


def test_every_setting_has_an_entry() -> None:
    defined, others = settings.defined(), settings.others()
    assert sorted(defined - ENTRIES.keys() - others.keys()) == []
    assert sorted((ENTRIES.keys() | others.keys()) - defined) == []
    assert sorted(ENTRIES.keys() & others.keys()) == []


def test_every_entry_names_its_one_test() -> None:
    assert len(ENTRIES) == sum(bool(row.setting) for row in ROWS)
    for name, row in ENTRIES.items():
        [test] = row.tests
        path, _, function = test.partition("::")
        assert function in functions_of(path), name
