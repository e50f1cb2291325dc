"""Loading the configured modules, and the one line that stops a worker."""

from pathlib import Path

import pytest

from agents.errors import RegistryError
from agents.registry import load
from runtime.ports import UnknownAgent

AGENT = """
from pydantic import BaseModel
from agents.gateway.scripted import say, script
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


def test_an_agent_nobody_loaded_is_unknown() -> None:
    with pytest.raises(UnknownAgent, match="no agent named nobody"):
        load(["agents.flows.hr"]).get("nobody")


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
        ("broken_desk", "1 / 0", "cannot load agents from broken_desk: ZeroDivisionError"),
        ("torn_desk", "def (", "cannot load agents from torn_desk: SyntaxError"),
        ("lines_desk", "raise ValueError('one\\ntwo')", "lines_desk: ValueError: one two"),
        ("empty_desk", "x = 1", "cannot load agents from empty_desk: it defines no agent"),
        (
            "wrong_desk",
            "from agents.sdk import tool\n@tool()\ndef act(x): 'Acts.'",
            "cannot load agents from wrong_desk: tool act: argument x has no type",
        ),
    ],
)
def test_a_module_that_does_not_load_is_named_in_one_line(
    module: Path, name: str, text: str, complaint: str
) -> None:
    (module / f"{name}.py").write_text(text)
    with pytest.raises(RegistryError, match=complaint) as caught:
        load([name])
    assert "\n" not in str(caught.value)


def test_a_module_that_is_not_there_is_named() -> None:
    with pytest.raises(RegistryError, match=r"cannot load agents from nowhere.to.be.found"):
        load(["nowhere.to.be.found"])


def test_no_modules_are_refused() -> None:
    with pytest.raises(RegistryError, match="ABEYANCE_AGENTS"):
        load([])
