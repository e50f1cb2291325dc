"""Each row of guarantees.md and security.md names a test; each test that is named exists, in tests/README.md too."""

import re
from collections import Counter

import pytest

from config.env.environment import ROOT
from tests.docs.pages import functions_of

NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
LISTS = {
    "docs/explanation/guarantees.md": "## The promises",
    "docs/explanation/security.md": "## Attacks",
}


@pytest.mark.parametrize("page", LISTS)
def test_every_row_of_the_lists_names_a_test(page: str) -> None:
    section = _text(page).partition(f"{LISTS[page]}\n")[2].partition("\n## ")[0]
    items = re.findall(r"^- .*(?:\n  .*)*", section, re.MULTILINE)
    rows = [" ".join(item.split()) for item in items]
    assert len(rows) > 40
    assert [row for row in rows if not NAMED.search(row)] == []
    said = [row.partition(": `tests/")[0] for row in rows]
    said += [str(NAMED.findall(row)) for row in rows]
    assert [one for one, number in Counter(said).items() if number > 1] == [], "made twice"


@pytest.mark.parametrize("page", [*LISTS, "tests/README.md"])
def test_every_test_that_is_named_exists(page: str) -> None:
    named = NAMED.findall(_text(page))
    missing = [f"{path}::{name}" for path, name in named if name not in functions_of(path)]
    assert missing == []


def _text(page: str) -> str:
    return (ROOT / page).read_text()
