"""What others got wrong: our way passes, and a small version of theirs is seen to fail the same property."""

import ast
import re
from collections.abc import Callable

import pytest

from config.env.environment import ROOT
from tests.upstream.naive import PURE, Variant

PAIRS = [(holds, variant) for holds, variants in PURE.items() for variant in variants]


@pytest.mark.parametrize("holds", PURE, ids=lambda one: one.__name__)
def test_it_holds_here(holds: Callable[[], None]) -> None:
    holds()


@pytest.mark.parametrize(
    ("holds", "variant"), PAIRS, ids=[variant.apply.__name__ for _, variant in PAIRS]
)
def test_the_naive_variant_is_seen(
    holds: Callable[[], None], variant: Variant, monkeypatch: pytest.MonkeyPatch
) -> None:
    variant.apply(monkeypatch)
    with pytest.raises(AssertionError):
        holds()


def test_there_are_enough_of_them() -> None:
    assert len(PAIRS) >= 15


def test_every_row_of_the_table_names_what_shows_it_and_every_variant_has_its_row() -> None:
    table = (ROOT / "docs/explanation/upstream-bugs.md").read_text().partition("|---|")[2]
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| ")]
    names = [row[0].removeprefix("| ") for row in rows]
    assert len(names) == len(set(names)) == 30
    for row in rows:
        shown = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row[-1])
        assert shown or "cannot occur: " in row[-1], row[0]
        assert [one for one in shown if one[1] not in _functions(one[0])] == []
        for path, name in shown:
            assert "properties" not in path or name in {one.__name__ for one in PURE}
    assert {bug for _, variant in PAIRS for bug in variant.bugs} <= set(names)


def _functions(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
