"""Loading the configured modules: the one line that stops a worker, and the list of `manage.py agents check`."""

import re
import signal
import sys
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from pytest_django import Settings

from agents import flows
from agents.errors import RegistryError
from agents.management.commands import agents as command
from agents.registry import load
from runtime.errors import UnknownAgent

HEAD = """
from pydantic import BaseModel
from agents.sdk.scripts import say, script
from agents.sdk import Budget, Holds, agent, tool

class Input(BaseModel):
    name: str

@script
def play(turn):
    return say("hello")

"""
AGENT = "{} = agent(name={!r}, description='A.', instructions='Do.', input=Input, {})\n"
GREETER = HEAD + AGENT.format("greeter", "greeter", "model=play")
WRONG_TOOL = "from agents.sdk import tool\n@tool()\ndef act(x): 'Acts.'"


@pytest.fixture
def module(tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    settings.AGENTS_DIR = str(tmp_path)
    return tmp_path


def test_a_module_gives_its_agents_and_their_sub_agents() -> None:
    registry = load(["agents.flows.hr", "agents.flows.hr.onboarding"])  # some of them twice
    assert set(registry.agents) == {
        "account_agent",
        "hr_access_bundle",
        "hr_onboarding",
        "hr_onboarding_single",
    }
    with pytest.raises(UnknownAgent, match="no agent named stranger"):
        registry.get("stranger")
    with pytest.raises(RegistryError, match="SIGNOFF_AGENTS"):
        load([])


def test_two_agents_of_one_name_are_refused_with_both_modules(module: Path) -> None:
    for name in ("first_desk", "second_desk"):
        (module / f"{name}.py").write_text(GREETER)
    with pytest.raises(RegistryError, match="greeter: one in first_desk, one in second_desk"):
        load(["first_desk", "second_desk"])


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("broken_desk", "1 / 0", ":1: ZeroDivisionError: division by zero"),
        ("torn_desk", "x = 1\ndef (", ":2: SyntaxError: invalid syntax"),
        ("lines_desk", "raise ValueError('one\\ntwo')", ":1: ValueError: one two"),
        ("poor_desk", "import nowhere.at_all", ":1: there is no module nowhere: name its package"),
        ("ended_desk", "import sys\nsys.exit(3)", ":2: SystemExit: 3"),
        ("empty_desk", "x = 1", ": it defines no agent"),
        ("wrong_desk", WRONG_TOOL, ":2: tool act: argument x has no type"),
    ],
)
def test_a_mistake_is_one_line(module: Path, name: str, text: str, complaint: str) -> None:
    (module / f"{name}.py").write_text(text)
    with pytest.raises(RegistryError) as caught:
        load([name], str(module))
    said = str(caught.value)
    assert said.startswith(f"cannot load agents from {name}: {module / name}.py{complaint}")
    assert "\n" not in said


@pytest.mark.parametrize("name", ["config", "colorsys"])
def test_a_folder_of_agents_is_looked_at_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("sys.path", [*sys.path])
    (tmp_path / f"{name}.py").write_text(GREETER)
    found = rf"is found before .*{name}\.py: give yours another"
    with pytest.raises(RegistryError, match=found):
        load([name], str(tmp_path))


def test_a_mistake_in_a_module_of_signoff_is_placed_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flows, "__path__", [*flows.__path__, str(tmp_path)])
    (tmp_path / "wrong.py").write_text(WRONG_TOOL)
    with pytest.raises(RegistryError, match=rf"{tmp_path}/wrong\.py:2: tool act: argument x has"):
        load(["agents.flows.wrong"])


LISTED = f"""{HEAD}
@tool(effect="read")
def look() -> str:
    "Looks."

@tool(risk="high", approval=True)
def act() -> str:
    "Acts."

rules = {{"approvals": "high", "holds": Holds(every=5), "budget": Budget(turns=9)}}
waived = act.with_settings(approval=False, deadline=5, expires_in=60)
{AGENT.format("desk", "desk", "model=play, models='openai:x', tools=[look, act], **rules")}
{AGENT.format("lax", "lax", "model=play, output=Input, tools=[waived]")}
"""


KEEPERS = f"""{HEAD}
from agents.sdk import last, prompt, summary
from agents.tools.requester import tell_requester

keeps = {{"answer": True, "plan": True, "thread_memory": last(5), "tools": [tell_requester()]}}
brief = {{"thread_memory": summary(500), "steps": ["Look", "Act"]}}
{AGENT.format("keeper", "keeper", "model=play, **keeps")}
{AGENT.format("short", "short", "model=play, **brief").replace("'Do.'", "prompt('shop/short', 'Do.')")}
"""


def check(*options: str) -> list[str]:
    out = StringIO()
    call_command("agents", "check", *options, stdout=out)
    return out.getvalue().splitlines()


def test_it_lists_tools_classes_gates_and_settings(module: Path, settings: Settings) -> None:
    (module / "listed_desk.py").write_text(LISTED)
    settings.SIGNOFF_AGENTS = ("listed_desk",)
    waived = "no person is asked, although the tool asks for one"
    assert check() == [
        f"listed_desk  {module}/listed_desk.py",
        "  desk: A.",
        "    model scripted:listed_desk.play",
        "    tool look: read, risk low",
        "    tool act: write, risk high, a person approves each call",
        "    stops after every 5 replies",
        "    stops when its budget is used up",
        "  lax: A.",
        "    model scripted:listed_desk.play",
        "    result Input",
        f"    tool act: write, risk high, {waived}, deadline 5 s, 60 s to decide",
        "2 agents, no mistakes",
    ]
    assert check("--brief") == []
    settings.SIGNOFF_MODEL, settings.OPENAI_API_KEY = "anthropic:x", ""
    with pytest.raises(SystemExit, match="OPENAI_API_KEY must be set"):
        check("--brief")


def test_it_lists_held_texts_memories_plans_and_prompts(module: Path, settings: Settings) -> None:
    (module / "keepers.py").write_text(KEEPERS)
    settings.SIGNOFF_AGENTS = ("keepers",)
    asked = "a person approves each call"
    assert check()[1:-1] == [
        "  keeper: A.",
        "    model scripted:keepers.play",
        f"    answer held: read, risk low, its text is held until it is released, {asked}",
        "    remembers the last 5 texts of its thread",
        f"    tool tell_requester: read, risk low, its text is held until it is released, {asked}",
        "    tool plan: read, risk low, keeps the agent's plan",
        "  short: A.",
        "    model scripted:keepers.play",
        "    prompt shop/short, which people may replace",
        "    remembers a summary of its thread, of at most 500 tokens",
        "    plan Look, Act",
    ]


MANY = f"""{HEAD}
@tool()
def act(x):
    "Acts."

@tool()
def help() -> str:
    "Helps."

hasty = help.with_settings(deadline=0)

def plain():
    "Has no decorator."

{AGENT.format("a", "first", "model='small', tools=[act.with_settings(deadline=5)]")}
{AGENT.format("b", "second", "model=play, tools=[plain]")}
"""


def test_every_mistake_is_listed_with_its_place(
    module: Path, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    (module / "wrong_office.py").write_text(MANY)
    (module / "broken_office.py").write_text("1 / 0")
    (module / "other_office.py").write_text("import broken_office")
    settings.SIGNOFF_AGENTS = ("wrong_office", "broken_office", "other_office", "missing_office")
    with pytest.raises(SystemExit) as end:
        call_command("agents", "check")
    assert end.value.code == 1
    said = capsys.readouterr().out.splitlines()
    wrong = [
        r"wrong_office\.py:\d+: tool act: ",
        r"wrong_office\.py:\d+: with_settings help: ",
        r"wrong_office\.py:\d+: agent first: .* not 'small'",
        r"wrong_office\.py:\d+: agent second: tools.0 must be a function with @tool, not plain",
        r"broken_office\.py:1: ZeroDivisionError",
        r"missing_office: there is no such module",
        r"^no agents, 6 mistakes$",
    ]
    for line, pattern in zip(said[-len(wrong) :], wrong, strict=True):
        assert re.search(pattern, line)
    with pytest.raises(SystemExit, match=r"ZeroDivisionError.*\(1 more: make agents lists all\)"):
        check("--brief")
    settings.SIGNOFF_AGENTS = ()
    with pytest.raises(SystemExit, match="no agents are configured"):
        check("--brief")


def test_an_import_without_end_is_interrupted(
    module: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The import shortens the timer that it runs under, so the test does not wait for it.
    (module / "endless_desk.py").write_text(
        "import signal\n"
        "assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 60\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.001)\n"
        "while True:\n    pass\n"
    )
    settings.SIGNOFF_AGENTS = ("endless_desk",)
    monkeypatch.setattr(command, "MAX_IMPORT_SECONDS", 60)
    where = r"endless_desk\.py:[345]: TimeoutError: its import has not ended after 60 s"
    with pytest.raises(SystemExit, match=where):
        check("--brief")
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL


def test_a_new_agent_replaces_no_file_and_needs_a_name_of_its_own(tmp_path: Path) -> None:
    call_command("agents", "new", "leaflets", folder=tmp_path, stdout=StringIO())
    kept = (tmp_path / "leaflets.py").read_text()
    for name, why in (
        ("leaflets", "leaflets.py and test_leaflets.py already: choose another NAME"),
        ("Leaflets", "lower case letters"),
        ("class", "cannot be a module"),
        ("say", "a name that the files of the agent use"),
        ("conftest", "a name that the files of the agent use"),
        ("email", "there is a module email already"),
    ):
        with pytest.raises(CommandError, match=why):
            call_command("agents", "new", name, folder=tmp_path, stdout=StringIO())
    assert (tmp_path / "leaflets.py").read_text() == kept
    assert len(list(tmp_path.iterdir())) == 3
