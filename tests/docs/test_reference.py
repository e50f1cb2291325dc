"""The pages and the picture from `make reference` match the code."""

import pytest

from runtime.reads.workers import LATE_SECONDS
from tests.docs import layers_picture
from tests.docs.reference import PAGES, REFERENCE


@pytest.mark.parametrize("name", PAGES)
def test_page_equals_generated_text(name: str) -> None:
    committed = (REFERENCE / name).read_text("utf-8")
    assert committed == PAGES[name](), (
        f"docs/reference/{name} is out of date: run `make reference` (python -m tests.docs.reference)"
    )


def test_every_name_has_a_meaning() -> None:
    lines = [line for page in PAGES.values() for line in page().splitlines()]
    assert [line for line in lines if line.endswith((": ", "|  |"))] == []


def test_picture_equals_drawn_layers() -> None:
    drawn = layers_picture.draw()
    assert layers_picture.TARGET.read_text("utf-8") == drawn, (
        "run `make reference` (python -m tests.docs.reference)"
    )
    assert drawn.count('class="way"') == len(layers_picture.WAY)


def test_operators_read_every_warning_of_a_late_loop() -> None:
    page = (REFERENCE.parent / "how-to/monitor.md").read_text("utf-8")
    assert [name for name in LATE_SECONDS if f"`{name}_late`" not in page] == []
