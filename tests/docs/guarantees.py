"""Writes the lists of promises into the docs, from `guarantees.toml`, the table of promises and their tests.

A page keeps its text by hand; the lines between MARK and the next heading of level two are written by `make reference`.
"""

import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from config.env.environment import ROOT

TABLE = Path(__file__).with_suffix(".toml")
EXPLANATION = ROOT / "docs" / "explanation"
# A link definition that nothing uses: invisible in every reader, also in the manual of an installation
MARK = "[//]: # (written by `make reference` from tests/docs/guarantees.toml; do not edit)\n"

Promises = Mapping[str, list[str]]


@cache
def read_table() -> Mapping[str, Mapping[str, Promises]]:
    """Return the tests of each promise, by section, by list; a list without sections has one of no name."""
    table = tomllib.loads(TABLE.read_text("utf-8"))
    return {
        name: sections if isinstance(next(iter(sections.values())), dict) else {"": sections}
        for name, sections in table.items()
    }


def promises() -> Iterator[tuple[str, list[str]]]:
    """Yield each promise of every list with its tests."""
    for sections in read_table().values():
        for section in sections.values():
            yield from section.items()


def guarantees() -> str:
    return _page("guarantees.md", "guarantees")


def security() -> str:
    return _page("security.md", "attacks")


PAGES = {"guarantees.md": guarantees, "security.md": security}


def write_all() -> None:
    for name, page in PAGES.items():
        (EXPLANATION / name).write_text(page(), encoding="utf-8")


def _page(name: str, table: str) -> str:
    """Return the text of a page with its list as the table has it."""
    head, _, tail = (EXPLANATION / name).read_text("utf-8").partition(MARK)
    _, heading, tail = tail.partition("\n## ")
    lists = (_list(section, rows) for section, rows in read_table()[table].items())
    return f"{head}{MARK}\n" + "\n".join(lists) + heading + tail


def _list(section: str, rows: Promises) -> str:
    title = f"### {section}\n\n" if section else ""
    return title + "".join(f"- {promise}\n" for promise in rows)
