"""Writes the files of a new agent: a module with a gate, its test, and the conftest.py that both need."""

import keyword
from importlib.util import find_spec
from pathlib import Path

from agents.errors import DefinitionError
from agents.sdk import fields

MODULE = '''"""The agent {name}. Change it to your needs."""

from typing import Annotated

from pydantic import BaseModel, Field

from agents.sdk import agent, tool
from agents.sdk.scripts import Reply, Turn, call, say, script

Subject = Annotated[str, Field(min_length=1, max_length=200)]


class Task(BaseModel):
    """The input of a run. The form of the page and the API check it."""

    subject: Subject


@tool(effect="read")
def look_up(subject: Subject) -> str:
    """Look up the news about a subject."""
    return f"{{subject}} is new"


@tool(effect="write", approval=True, risk="medium", sentence="Publish: {{text}}")
def publish(text: str) -> str:
    """Publish a text. A person approves each call first."""
    return "published"


@script
def scripted(turn: Turn) -> Reply:
    """Answer in place of a model. Leave `model=` out of the agent, and the installation's model answers."""
    if publication := turn.result("publish"):
        return say("It is published." if publication.ok else f"It was not published: {{publication.why}}")
    if news := turn.result("look_up"):
        return call("publish", text=str(news.content))
    return call("look_up", subject=turn.input["subject"])


{name} = agent(
    name="{name}",
    description="Publishes news about a subject.",
    instructions="Look the subject up, then publish one sentence about it. Say whether it was published.",
    input=Task,
    model=scripted,
    tools=[look_up, publish],
    steps=("Look the subject up", "Publish a sentence"),
)
'''

TEST = '''"""The agent {name}: nothing is published before a person approves it."""

from {name} import {name}


def test_a_person_approves_before_it_publishes(drive):
    run = drive({name}, {{"subject": "Tea"}})
    assert run.gate.sentence == "Publish: Tea is new"
    assert [call.tool for call in run.calls] == ["look_up"]
    run.approve()
    assert [call.tool for call in run.calls] == ["look_up", "publish"]
    assert run.output == "It is published."


def test_nothing_is_published_after_a_denial(drive):
    run = drive({name}, {{"subject": "Tea"}}).deny("Not today")
    assert [call.tool for call in run.calls] == ["look_up"]
    assert "Not today" in run.output
'''

# Names that the functions above look up when they run: the agent would be in their place.
_TAKEN = frozenset({"call", "drive", "say"})

CONFTEST = 'pytest_plugins = ["agents.testing.plugin"]\n'


def write(name: str, folder: Path) -> list[Path]:
    """Write the files into the folder and return them. Raise DefinitionError rather than replace one.

    A conftest.py that is there is kept, and not among the returned files.
    """
    fields.name(name, "NAME")
    if keyword.iskeyword(name):
        raise DefinitionError(f"NAME: {name} is a word of Python, so it cannot be a module")
    if name in _TAKEN:
        raise DefinitionError(
            f"NAME: {name} is a name that the files of the agent use: choose another"
        )
    texts = {
        folder / f"{name}.py": MODULE.format(name=name),
        folder / f"test_{name}.py": TEST.format(name=name),
    }
    if present := [path.name for path in texts if path.exists()]:
        raise DefinitionError(f"{folder} has {' and '.join(present)} already: choose another NAME")
    spec = find_spec(name)
    if spec is not None and spec.origin is not None:  # a folder alone hides no file
        raise DefinitionError(
            f"NAME: there is a module {name} already, which would be loaded instead"
        )
    if not (folder / "conftest.py").exists():
        texts[folder / "conftest.py"] = CONFTEST
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    return list(texts)
