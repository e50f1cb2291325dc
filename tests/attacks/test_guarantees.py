"""docs/guarantees.md names a test in every row, and each of them exists."""

import ast
import re

from config.env import ROOT

NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
PAGE = ROOT / "docs" / "guarantees.md"


def test_every_row_of_the_table_names_a_test() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("|")][2:]
    assert rows
    assert [row for row in rows if not NAMED.search(row)] == []


def test_every_test_that_is_named_exists() -> None:
    named = NAMED.findall(PAGE.read_text())
    missing = [f"{path}::{name}" for path, name in named if name not in _tests_of(path)]
    assert missing == []


def _tests_of(path: str) -> set[str]:
    file = ROOT / path
    if not file.exists():
        return set()
    tree = ast.parse(file.read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
