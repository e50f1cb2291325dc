"""The documents, and the code blocks in them."""

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from config.env.environment import ROOT

README = ROOT / "README.md"
ROOT_PAGES = [README, *(ROOT / f"{name}.md" for name in ("CHANGELOG", "CONTRIBUTING", "SECURITY"))]
PAGES = [*ROOT_PAGES, *sorted((ROOT / "docs").rglob("*.md"))]

_FENCE = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block; `language` is empty for commands and their output."""

    language: str
    text: str


def blocks(page: Path, language: str | None = None) -> list[Block]:
    """The blocks of a page in order, all of them or those of a language."""
    found = [Block(**match.groupdict()) for match in _FENCE.finditer(page.read_text("utf-8"))]
    return [block for block in found if language in (None, block.language)]


@cache
def functions_of(path: str) -> set[str]:
    """Return the names of the functions of a file, none if it is not there."""
    file = ROOT / path
    tree = ast.parse(file.read_text() if file.exists() else "")
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
