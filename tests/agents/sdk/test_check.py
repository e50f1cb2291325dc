"""`manage.py agents check`: lists agents and their problems."""

import signal
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from pytest_django import Settings

from agents.management.commands import agents as command

AGENT = """
from pydantic import BaseModel
from agents.sdk.scripts import say, script
from agents.sdk import Budget, Holds, agent, tool

class Input(BaseModel):
    name: str

@script
def play(turn):
    return say("hello")

@tool(effect="read")
def look() -> str:
    "Looks."

@tool(risk="high")
def act() -> str:
    "Acts."

desk = agent(name="desk", description="A desk.", instructions="Do.", input=Input, model=play,
             tools=[look, act], approvals="high", holds=Holds(every=5), budget=Budget(turns=9))
"""
LAXER = AGENT.replace('@tool(risk="high")', "@tool(approval=True)").replace(
    'act], approvals="high"',
    "act.with_settings(approval=False, deadline=5, expires_in=60)], output=Input",
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    settings.AGENTS_DIR = str(tmp_path)
    return tmp_path


def check(*options: str) -> list[str]:
    out = StringIO()
    call_command("agents", "check", *options, stdout=out)
    return out.getvalue().splitlines()


def test_it_lists_tools_classes_and_gates(folder: Path, settings: Settings) -> None:
    (folder / "listed_desk.py").write_text(AGENT)
    settings.ABEYANCE_AGENTS = ("listed_desk",)
    assert check() == [
        f"listed_desk  {folder}/listed_desk.py",
        "  desk: A desk.",
        "    model scripted:listed_desk.play",
        "    tool look: read, risk low",
        "    tool act: write, risk high, a person approves each call",
        "    stops after every 5 replies",
        "    stops when its budget is used up",
        "1 agent, no mistakes",
    ]
    assert check("--brief") == []


def test_it_lists_an_agents_settings_of_a_tool(folder: Path, settings: Settings) -> None:
    (folder / "laxer_desk.py").write_text(LAXER)
    settings.ABEYANCE_AGENTS = ("laxer_desk",)
    waived = "no person is asked, although the tool asks for one"
    said = f"    tool act: write, risk low, {waived}, deadline 5 s, 60 s to decide"
    listed = check()
    assert {said, "    result Input"} <= set(listed)


def test_a_mistake_ends_it_with_one(
    folder: Path, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "failing_desk.py").write_text("1 / 0")
    settings.ABEYANCE_AGENTS = ("failing_desk", "missing_desk")
    with pytest.raises(SystemExit) as end:
        call_command("agents", "check")
    assert end.value.code == 1
    said = capsys.readouterr().out
    assert "failing_desk.py:1: ZeroDivisionError" in said
    assert "missing_desk: there is no such module" in said
    assert said.endswith("no agents, 2 mistakes\n")
    with pytest.raises(SystemExit, match=r"ZeroDivisionError.*\(1 more: make agents lists all\)"):
        check("--brief")


def test_a_key_that_is_missing_is_a_mistake(
    folder: Path, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "paid_desk.py").write_text(AGENT.replace("tools=", "models='openai:x', tools="))
    settings.ABEYANCE_AGENTS = ("paid_desk",)
    settings.ABEYANCE_MODEL, settings.OPENAI_API_KEY = "anthropic:x", ""
    with pytest.raises(SystemExit, match="OPENAI_API_KEY must be set"):
        check("--brief")
    with pytest.raises(SystemExit):
        call_command("agents", "check")
    said = capsys.readouterr().out
    assert said.endswith("OPENAI_API_KEY must be set, or OPENAI_API_KEY_FILE\n1 agent, 1 mistake\n")


def test_no_agents_are_a_mistake(settings: Settings) -> None:
    settings.ABEYANCE_AGENTS = ()
    with pytest.raises(SystemExit, match="no agents are configured"):
        check("--brief")


def test_an_import_without_end_is_interrupted(
    folder: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The import shortens the timer that it runs under, so the test does not wait for it.
    (folder / "endless_desk.py").write_text(
        "import signal\n"
        "assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 60\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.001)\n"
        "while True:\n    pass\n"
    )
    settings.ABEYANCE_AGENTS = ("endless_desk",)
    monkeypatch.setattr(command, "MAX_IMPORT_SECONDS", 60)
    where = r"endless_desk\.py:[345]: TimeoutError: its import has not ended after 60 s"
    with pytest.raises(SystemExit, match=where):
        check("--brief")
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
