"""The pages of the manual."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.web import installation


@pytest.fixture
def manual(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    caches = (installation._pages, installation._rendered)
    monkeypatch.setattr(installation, "DOCS", tmp_path)
    for cache in caches:
        cache.cache_clear()
    yield tmp_path
    for cache in caches:
        cache.cache_clear()


def test_links_lead_to_the_pages_here_with_their_titles(manual: Path) -> None:
    (manual / "next.md").write_text("# Next")
    (manual / "README.md").write_text(
        '# Start\n\n[On](next.md "The next page") [Code](../code.py "A file") [Web](https://a.example)'
    )
    title, html = installation._rendered("README")
    assert title == "Start"
    assert '<a href="/manual/next/" title="The next page">On</a> <a>Code</a>' in html
    assert '<a href="https://a.example" rel="noreferrer">Web</a>' in html
