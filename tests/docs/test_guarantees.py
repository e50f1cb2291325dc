"""Each promise of the docs names tests, each test that is named exists, and the pages match the table."""

import re
from collections import Counter

import pytest

from config.env.environment import ROOT
from tests.docs import guarantees
from tests.docs.pages import functions_of

NAMED = re.compile(r"(tests/[\w/]+\.py)::(test_\w+)")


def test_every_promise_has_tests_of_its_own() -> None:
    rows = list(guarantees.promises())
    assert [promise for promise, tests in rows if not tests] == []
    promises = Counter(promise for promise, _ in rows)
    tests = Counter(str(tests) for promise, tests in rows if promise not in _bugs())
    assert [text for text, number in (promises | tests).items() if number > 1] == []


def test_every_test_of_the_table_exists() -> None:
    rows = [test for _, tests in guarantees.promises() for test in tests]
    assert [test for test in rows if not NAMED.fullmatch(test)] == []
    assert _missing(" ".join(rows)) == []


def test_every_test_of_their_readme_exists() -> None:
    assert _missing((ROOT / "tests/README.md").read_text("utf-8")) == []


@pytest.mark.parametrize("name", guarantees.PAGES)
def test_page_lists_the_promises_of_the_table(name: str) -> None:
    page = (guarantees.EXPLANATION / name).read_text("utf-8")
    assert page == guarantees.PAGES[name](), "run `make reference` (python -m tests.docs.reference)"


def _bugs() -> set[str]:
    """Return the bugs of others: one test may show that several cannot happen here."""
    return set(guarantees.read_table()["bugs"][""])


def _missing(text: str) -> list[str]:
    return [
        f"{path}::{name}" for path, name in NAMED.findall(text) if name not in functions_of(path)
    ]
