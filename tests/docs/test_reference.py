"""The pages of docs/reference that `make reference` writes are what the code has now."""

import pytest

from tests.docs.reference import PAGES, REFERENCE


@pytest.mark.parametrize("name", PAGES)
def test_page_equals_generated_text(name: str) -> None:
    committed = (REFERENCE / name).read_text("utf-8")
    assert committed == PAGES[name](), f"docs/reference/{name} is out of date: run `make reference`"
