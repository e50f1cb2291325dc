"""The one table of limits, and its copy for operators."""

from pathlib import Path

import pytest

from runtime.core import limits

PAGE = Path(__file__).parents[2] / "docs/reference/limits.md"


def test_operators_read_every_limit() -> None:
    """A limit that is changed or added fails here until the page says so."""
    words = PAGE.read_text(encoding="utf-8").replace("|", " ").split()
    told = {int(word) for word in words if word.isdecimal()}
    kept = [value for name, value in vars(limits).items() if name.isupper()]
    assert [number for number in kept if number not in told] == []


@pytest.mark.parametrize("text", ["plain", "x" * limits.MAX_ERROR])
def test_text_that_a_journal_takes_stays_as_it_is(text: str) -> None:
    assert limits.plain(text) == text


def test_any_other_text_is_escaped_and_cut() -> None:
    assert limits.plain("a\x00b\ud800") == "a\\0b\\ud800"
    cut = limits.plain("\x00" * limits.MAX_ERROR)
    assert len(cut) == limits.MAX_ERROR
    assert cut.endswith("…")
