"""Loading the configured modules, and the one line that stops a worker."""

import sys
from pathlib import Path

import pytest

from agents import flows
from agents.errors import RegistryError
from agents.registry import load, survey
from runtime.errors import UnknownAgent

AGENT = """
from pydantic import BaseModel
from agents.sdk.scripts import say, script
from agents.sdk import agent

class Input(BaseModel):
    name: str

@script
def play(turn):
    return say("hello")

{variable} = agent(name="{name}", description="A.", instructions="Do.", input=Input, model=play)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_a_module_gives_its_agents_and_their_sub_agents() -> None:
    registry = load(["agents.flows.hr"])
    assert set(registry.agents) == {
        "account_agent",
        "hr_access_bundle",
        "hr_onboarding",
        "hr_onboarding_single",
    }


def test_the_same_module_twice_gives_the_same_agents() -> None:
    assert len(load(["agents.flows.hr", "agents.flows.hr.onboarding"]).agents) == 4


def test_an_agent_that_is_not_loaded_is_unknown() -> None:
    with pytest.raises(UnknownAgent, match="no agent named stranger"):
        load(["agents.flows.hr"]).get("stranger")


def test_two_agents_of_one_name_are_refused_with_both_modules(module: Path) -> None:
    (module / "first_desk.py").write_text(AGENT.format(variable="a", name="greeter"))
    (module / "second_desk.py").write_text(AGENT.format(variable="b", name="greeter"))
    with pytest.raises(
        RegistryError, match=r"named greeter: one in first_desk, one in second_desk"
    ):
        load(["first_desk", "second_desk"])


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("broken_desk", "1 / 0", ":1: ZeroDivisionError: division by zero"),
        ("torn_desk", "x = 1\ndef (", ":2: SyntaxError: invalid syntax"),
        ("lines_desk", "raise ValueError('one\\ntwo')", ":1: ValueError: one two"),
        ("lacking_desk", "\nimport no_such_module", ":2: ModuleNotFoundError: No module named 'no"),
        ("ended_desk", "import sys\nsys.exit(3)", ":2: SystemExit: 3"),
        ("empty_desk", "x = 1", ": it defines no agent"),
        (
            "wrong_desk",
            "from agents.sdk import tool\n@tool()\ndef act(x): 'Acts.'",
            ":2: tool act: argument x has no type",
        ),
    ],
)
def test_a_mistake_is_one_line_with_its_file_and_line(
    module: Path, name: str, text: str, complaint: str
) -> None:
    (module / f"{name}.py").write_text(text)
    with pytest.raises(RegistryError) as caught:
        load([name], str(module))
    said = str(caught.value)
    assert said.startswith(f"cannot load agents from {name}: {module / name}.py{complaint}")
    assert "\n" not in said


def test_a_mistake_in_an_imported_file_is_named_there(module: Path) -> None:
    (module / "far_prices.py").write_text("PRICES = {}\nPRICES['A-1']\n")
    (module / "near_desk.py").write_text("import far_prices\n")
    with pytest.raises(RegistryError, match=r"far_prices\.py:2: KeyError: 'A-1'"):
        load(["near_desk"], str(module))


MANY = """
from agents.sdk import tool

@tool()
def act(x):
    "Acts."

@tool()
def look() -> object:
    "Looks."

@tool()
def help() -> str:
    "Helps."

hasty = help.with_settings(deadline=0)

def plain():
    "Has no decorator."

{first}
{second}
"""


def test_a_survey_lists_every_mistake(module: Path) -> None:
    agent = AGENT.partition("{variable}")[0] + "{} = agent(name={!r}, description='A.', "
    agent += "instructions='Do.', input=Input, {})"
    first = agent.format("a", "first", "model='small', tools=[act.with_settings(deadline=5)]")
    second = agent.format("b", "second", "model=play, tools=[plain]")
    (module / "wrong_office.py").write_text(MANY.format(first=first, second=second))
    (module / "broken_office.py").write_text("1 / 0")
    (module / "other_office.py").write_text("import broken_office")
    found = survey(["wrong_office", "broken_office", "other_office"], str(module))
    said = [mistake.what for mistake in found.mistakes]
    assert [what.partition(":")[0].partition(" returns")[0] for what in said] == [
        "tool act",
        "tool look",
        "tool help",
        "agent first",
        "agent second",
        "ZeroDivisionError",
    ]
    assert "not 'small'" in said[3]
    assert "plain: each of them is a function with @tool" in said[4]
    assert all(mistake.place for mistake in found.mistakes)


def test_a_name_that_is_taken_by_another_module_is_explained(module: Path) -> None:
    (module / "config.py").write_text(AGENT.format(variable="a", name="greeter"))
    with pytest.raises(RegistryError, match=r"is found before .*config\.py: give yours another"):
        load(["config"], str(module))


def test_a_folder_of_agents_is_looked_at_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.path", [*sys.path])
    (tmp_path / "colorsys.py").write_text(AGENT.format(variable="a", name="greeter"))
    with pytest.raises(RegistryError, match=r"is found before .*colorsys\.py"):
        load(["colorsys"], str(tmp_path))


def test_a_mistake_in_a_module_of_abeyance_is_placed_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flows, "__path__", [*flows.__path__, str(tmp_path)])
    (tmp_path / "wrong.py").write_text("from agents.sdk import tool\n@tool()\ndef act(x): 'Acts.'")
    with pytest.raises(
        RegistryError, match=rf"{tmp_path}/wrong\.py:2: tool act: argument x has no"
    ):
        load(["agents.flows.wrong"])


def test_a_module_that_is_not_there_is_named() -> None:
    with pytest.raises(RegistryError, match=r"cannot load agents from nowhere.to.be.found"):
        load(["nowhere.to.be.found"])


def test_no_modules_are_refused() -> None:
    with pytest.raises(RegistryError, match="ABEYANCE_AGENTS"):
        load([])
