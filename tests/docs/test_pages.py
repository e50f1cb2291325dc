"""Pages are short, and the one index names each of them."""

import re
from pathlib import Path

import pytest

from config.env.environment import ROOT
from tests.docs.pages import PAGES, README

DOCS = ROOT / "docs"
INDEX = DOCS / "README.md"
MAX_LINES = {README: 120, DOCS / "explanation" / "architecture.md": 300}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page_is_short(page: Path) -> None:
    text = page.read_text("utf-8")
    assert len(text.splitlines()) <= MAX_LINES.get(page, 400)


def test_index_names_every_page() -> None:
    linked = {
        (DOCS / target).resolve()
        for target in re.findall(r"\]\(([^)#]+)\)", INDEX.read_text("utf-8"))
    }
    adrs = DOCS / "explanation" / "adr"
    pages = {page for page in PAGES if page not in (README, INDEX) and page.parent != adrs}
    assert linked == pages | {adrs}
