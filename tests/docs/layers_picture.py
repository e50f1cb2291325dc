"""Draws docs/img/layers.svg from the layers of .importlinter, with the way of a decision through them.

A box is a package or module; lines inside it are its own layers, and a line that begins with a dot belongs to the one
above. An import may point down, never up.
"""

import re
from configparser import ConfigParser

from config.env.environment import ROOT

TARGET = ROOT / "docs" / "img" / "layers.svg"
# From the click of a reviewer to the tool; architecture.md explains the numbers.
WAY = {
    "approvals": "1",
    "runtime.control": "2",
    "runtime.store": "3",
    "runtime.broker": "4",
    "runtime.tasks": "5",
    "runtime.execution": "6–11",
    "agents": "12",
}
WIDTH, GAP, LINE = 1000, 8, 17
NAMES_IN_A_LINE = 3
STYLE = (
    "text{font:12px ui-monospace,monospace;fill:#1b1f24}rect+text{font-weight:700}.way{fill:#b3261e;font-weight:700}"
    "rect{fill:#fff;stroke:#8a949e}.outer{fill:#f2f4f6}.page{stroke:none}"
)


def draw() -> str:
    layers = _layers()
    top, packages = GAP, list[str]()
    for names in layers[""][:-1]:
        packages += _row([[_shown(name)] for name in names], top, GAP)
        top += LINE + 10 + GAP
    inner, engine = top + LINE + GAP, list[str]()
    for names in layers["runtime"]:
        boxes = [_lines(f"runtime.{name}", layers) for name in names]
        engine += _row(boxes, inner, 2 * GAP)
        inner += LINE * max(map(len, boxes)) + 10 + GAP
    frame = _box("outer", ["runtime"], GAP, top, WIDTH - 2 * GAP, inner - top)
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {inner + GAP}" role="img">',
        "<title>The packages of Signoff in layers, and the way of a decision through them</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="page" width="{WIDTH}" height="{inner + GAP}"/>',
    ]
    return "\n".join([*head, *packages, frame, *engine, "</svg>\n"])


def _layers() -> dict[str, list[list[str]]]:
    """Return the layers of each package, top first; those of the whole are at the empty name."""
    contracts = ConfigParser()
    contracts.read(ROOT / ".importlinter")
    found = {}
    for section in contracts.values():
        if section.get("type") == "layers":
            rows = section["layers"].strip().splitlines()
            found[section.get("containers", "").strip()] = [row.split(" | ") for row in rows]
    return found


def _lines(package: str, layers: dict[str, list[list[str]]]) -> list[str]:
    """Return the name of a package and then its layers, a long one in several lines."""
    lines = [
        ("· " if at else "")
        + " · ".join(_shown(f"{package}.{name}") for name in row[at : at + NAMES_IN_A_LINE])
        for row in layers.get(package, [])
        for at in range(0, len(row), NAMES_IN_A_LINE)
    ]
    return [_shown(package), *lines]


def _shown(name: str) -> str:
    """Return the last part of a name, with its numbers on the way of a decision."""
    short = name.rpartition(".")[2]
    return f'<tspan class="way">{WAY[name]} {short}</tspan>' if name in WAY else short


def _row(boxes: list[list[str]], top: int, left: int) -> list[str]:
    """Draw the boxes of one layer beside each other, as wide as their longest lines."""
    longest = [max(len(re.sub("<.+?>", "", line)) for line in lines) + 2 for lines in boxes]
    room = WIDTH - 2 * left - GAP * (len(boxes) - 1)
    height, drawn = LINE * max(map(len, boxes)) + 10, list[str]()
    for lines, characters in zip(boxes, longest, strict=True):
        width = room * characters // sum(longest)
        drawn.append(_box("box", lines, left, top, width, height))
        left += width + GAP
    return drawn


def _box(kind: str, lines: list[str], left: int, top: int, width: int, height: int) -> str:
    place = f'x="{left}" y="{top}" width="{width}" height="{height}"'
    texts = [
        f'<text x="{left + 8}" y="{top + 18 + LINE * number}">{line}</text>'
        for number, line in enumerate(lines)
    ]
    return "\n".join([f'<rect class="{kind}" {place} rx="4"/>', *texts])
