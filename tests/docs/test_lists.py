"""What architecture page and glossary list of closed lists and layers is what the code has."""

import configparser
import re

from config.env.environment import ROOT
from runtime.core.continuation import CallState, FrameState, RunStatus
from runtime.core.decisions import EffectClass, GateKind, Risk, Verdict
from runtime.core.events import EVENT_TYPES

PAGE = (ROOT / "docs/explanation/architecture.md").read_text("utf-8")
ROOMS = (
    "engine",
    "control",
    "upkeep",
    "execution",
    "admission",
    "effects",
    "store",
    "broker",
)  # contracts in .importlinter
GLOSSARY = (ROOT / "docs/reference/glossary.md").read_text("utf-8")


def _part(heading: str, page: str = PAGE) -> list[str]:
    """The rows of the first table below a heading, its two lines on top left out."""
    below = page.partition(f"\n{heading}\n")[2]
    table = re.search(r"^\|.*?\n(?!\|)", below, re.MULTILINE | re.DOTALL)
    assert table is not None, heading
    return table[0].splitlines()[2:]


def _members(name: str) -> set[str]:
    """The words in the second column of a closed list."""
    rows = {
        row.split("|")[1].strip(): row.split("|")[2] for row in _part("### The other closed lists")
    }
    return set(re.findall(r"\w+", rows[name]))


def test_every_event_is_listed() -> None:
    told = {name for row in _part("### Events") for name in re.findall(r"[A-Z]\w+", row)}
    assert told == {event.__name__ for event in EVENT_TYPES}


def test_every_member_of_a_closed_list_is_listed() -> None:
    for name, list_ in (
        ("run", RunStatus),
        ("frame", FrameState),
        ("gate kind", GateKind),
        ("verdict", Verdict),
    ):
        assert {member.value for member in list_} <= _members(name), name


def test_the_glossary_explains_what_there_is_and_marks_what_is_to_come() -> None:
    for heading, list_ in (
        ("### Run states", RunStatus),
        ("### Frame states", FrameState),
        ("### Call states", CallState),
        ("### Gate kinds", GateKind),
        ("### Effect classes", EffectClass),
        ("### Risks", Risk),
        ("### Verdicts", Verdict),
    ):
        rows = [row.split("|") for row in _part(heading, GLOSSARY)]
        now = {row[1].strip() for row in rows if "later" not in (cell.strip() for cell in row)}
        assert now == {member.value for member in list_}, heading


def test_every_layer_of_the_engine_is_listed_with_its_modules() -> None:
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter")
    layers = " ".join(contracts[f"importlinter:contract:{room}"]["layers"] for room in ROOMS)
    below = PAGE.partition("The inside of `runtime/` is layered")[2].partition("### Arrows")[0]
    told = set(re.findall(r"`(\w+)`", below)) | {"core"}
    assert set(re.findall(r"\w+", layers)) == told - {"runtime"}
