"""The table of hand-made mutants is about this code: `python -m tests.mutants` (make mutants) tries them."""

import ast
from collections import Counter

import pytest

from config.env.environment import ROOT
from tests.mutants.hand import GATES, JOURNAL, LEASES, ROWS, SIGNALS, Row

rows = pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])


@rows
def test_what_a_mutant_changes_is_there_once(row: Row) -> None:
    assert (ROOT / row.file).read_text().count(row.old) == 1
    assert row.new != row.old


@rows
def test_the_test_that_sees_it_is_there(row: Row) -> None:
    path, _, name = row.test.partition("::")
    tree = ast.parse((ROOT / path).read_text())
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_there_are_enough_of_them_and_no_two_have_one_name() -> None:
    assert len(ROWS) >= 30
    assert min(map(len, (LEASES, JOURNAL, SIGNALS, GATES))) >= 5
    assert Counter(row.name for row in ROWS).most_common(1)[0][1] == 1
