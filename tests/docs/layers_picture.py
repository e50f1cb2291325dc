"""Draws docs/img/layers.svg from the layers of .importlinter, with the way of a decision through them.

A box is a package or module; lines inside it are its own layers. An import may point down, never up.
"""

from configparser import ConfigParser
from dataclasses import dataclass
from html import escape

from config.env.environment import ROOT

TARGET = ROOT / "docs" / "img" / "layers.svg"
# From the click of a reviewer to the tool; architecture.md explains the numbers.
WAY = (
    "approvals",
    "runtime.control.settle",
    "runtime.store.decisions",
    "runtime.broker.dispatch",
    "runtime.tasks",
    "runtime.execution.claim",
    "runtime.execution.runner",
    "runtime.execution.step",
    "runtime.execution.admission",
    "runtime.execution.commit",
    "runtime.execution.effects",
    "agents",
)
WIDTH, MARGIN, GAP, LINE, CHARACTER = 1000, 12, 8, 17, 6.9
STYLE = (
    "text{font:12px ui-monospace,monospace;fill:#1b1f24}.name{font-weight:700}.way{fill:#b3261e;font-weight:700}"
    "rect{fill:#fff;stroke:#8a949e}.outer{fill:#f2f4f6}.page{stroke:none}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A package or module of a layer; each line holds the names of one of its own layers."""

    name: str
    lines: tuple[tuple[str, ...], ...] = ()

    @property
    def height(self) -> int:
        """Its height in pixels."""
        return LINE * (1 + len(self.lines)) + 10

    @property
    def least(self) -> float:
        """The width that its longest line takes, in pixels."""
        texts = [self.name, *(" · ".join(line) for line in self.lines)]
        numbered = 3 * max((sum(one in WAY for one in line) for line in self.lines), default=1)
        return CHARACTER * (max(len(_short(text)) for text in texts) + numbered + 1) + 12


def draw() -> str:
    """Return the picture as SVG."""
    contracts = ConfigParser()
    contracts.read(ROOT / ".importlinter")
    layers = _contracts(contracts)
    shapes: list[str] = []
    top = MARGIN
    for row in layers[""][:-1]:
        top = _row(shapes, [Box(name=name) for name in row], top, MARGIN)
    shapes.append("")
    place, inner = len(shapes) - 1, top + LINE + 8
    for row in layers["runtime"]:
        boxes = [
            Box(name=f"runtime.{name}", lines=_inside(layers, f"runtime.{name}")) for name in row
        ]
        inner = _row(shapes, boxes, inner, 2 * MARGIN)
    shapes[place] = _frame("runtime", MARGIN, top, WIDTH - 2 * MARGIN, inner - top, "outer")
    height = inner + MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">\n'
        f"<title>The packages of Abeyance in layers, and the way of a decision through them</title>\n"
        f"<style>{STYLE}</style>\n"
        f'<rect class="page" width="{WIDTH}" height="{height}"/>\n'
        + "\n".join(shapes)
        + "\n</svg>\n"
    )


def _contracts(contracts: ConfigParser) -> dict[str, list[list[str]]]:
    """Return the layers of each package, top first; those of the whole are at the empty name."""
    found = {}
    for section in contracts.sections():
        if contracts[section].get("type") == "layers":
            package = contracts[section].get("containers", "").strip()
            rows = contracts[section]["layers"].strip().splitlines()
            found[package] = [[name.strip() for name in row.split("|")] for row in rows]
    return found


def _inside(layers: dict[str, list[list[str]]], package: str) -> tuple[tuple[str, ...], ...]:
    return tuple(
        tuple(f"{package}.{name}" for name in row) for row in _split(layers.get(package, []))
    )


def _split(rows: list[list[str]], longest: int = 6) -> list[list[str]]:
    """Break a row of many names into several lines."""
    return [row[at : at + longest] for row in rows for at in range(0, len(row), longest)]


def _row(shapes: list[str], boxes: list[Box], top: int, margin: int) -> int:
    """Draw the boxes of one layer, below each other where they do not fit; return where the next layer begins."""
    room = WIDTH - 2 * margin
    while boxes:
        taken = 1
        while (
            taken < len(boxes) and sum(box.least + GAP for box in boxes[: taken + 1]) - GAP <= room
        ):
            taken += 1
        line, boxes = boxes[:taken], boxes[taken:]
        spare = (room - sum(box.least for box in line) - GAP * (taken - 1)) / taken
        height, left = max(box.height for box in line), float(margin)
        for box in line:
            shapes.append(_box(box, left, top, box.least + spare, height))
            left += box.least + spare + GAP
        top += height + GAP
    return top


def _box(box: Box, left: float, top: int, width: float, height: int) -> str:
    lines = [
        f'<text x="{left + 8:.0f}" y="{top + 18 + LINE * (number + 1)}">{" · ".join(map(_text, line))}</text>'
        for number, line in enumerate(box.lines)
    ]
    return "\n".join([_frame(box.name, left, top, width, height, "box"), *lines])


def _frame(name: str, left: float, top: int, width: float, height: int, kind: str) -> str:
    return (
        f'<rect class="{kind}" x="{left:.0f}" y="{top}" width="{width:.0f}" height="{height}" rx="4"/>\n'
        f'<text class="name" x="{left + 8:.0f}" y="{top + 18}">{_text(name)}</text>'
    )


def _text(name: str) -> str:
    """Return the last part of a name, with its number on the way of a decision."""
    short = escape(_short(name))
    return f'<tspan class="way">{WAY.index(name) + 1} {short}</tspan>' if name in WAY else short


def _short(text: str) -> str:
    return " · ".join(name.rpartition(".")[2] for name in text.split(" · "))
