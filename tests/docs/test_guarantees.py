"""Each row of the tables in guarantees.md and security.md names a test that exists."""

import ast
import re

import pytest

from config.env.environment import ROOT

NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
TABLES = {"guarantees.md": "## By boundary", "security.md": "## Attacks"}

pages = pytest.mark.parametrize("page", TABLES)


@pages
def test_every_row_of_the_table_names_a_test(page: str) -> None:
    section = _text(page).partition(f"{TABLES[page]}\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")][2:]
    assert rows
    assert [row for row in rows if not NAMED.search(row)] == []


@pages
def test_every_test_that_is_named_exists(page: str) -> None:
    named = NAMED.findall(_text(page))
    missing = [f"{path}::{name}" for path, name in named if name not in _tests_of(path)]
    assert missing == []


def _text(page: str) -> str:
    return (ROOT / "docs/explanation" / page).read_text()


def _tests_of(path: str) -> set[str]:
    file = ROOT / path
    if not file.exists():
        return set()
    tree = ast.parse(file.read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
