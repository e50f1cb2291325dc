"""`manage.py agents check` lists the configured agents and every mistake in them; `agents new` writes one."""

import keyword
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from agents.errors import DefinitionError
from agents.registry import AgentModule, Survey, survey, walk_family
from agents.sdk import fields
from agents.sdk.spec import DEPENDS, AgentSpec, ToolSpec
from runtime.core.values.enums import Risk

MAX_IMPORT_SECONDS = 30.0  # for the modules of agents
ASKED = "a person approves each call"
SOME_ASKED = "a person approves some calls, depending on their arguments"
WAIVED = "no person is asked, although the tool asks for one"
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

_AWAITED = {"time": "a time", "event": "an event", "instance": "the instance that performs it"}
# Names that the functions above look up when they run, and that of the third file: the agent would be in their place.
_TAKEN = frozenset({"call", "conftest", "drive", "say"})

CONFTEST = 'pytest_plugins = ["agents.testing.plugin"]\n'


class Command(BaseCommand):
    """Lists the configured agents with every mistake in their modules, or writes the files of a new one."""

    help = (
        "List the agents of SIGNOFF_AGENTS and every mistake in them, or write a new agent. Ends with 1 if there is"
        " a mistake."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        acts = parser.add_subparsers(dest="act", required=True, metavar="ACT")
        check = acts.add_parser("check", help="load them once and list their mistakes")
        check.add_argument("--brief", action="store_true", help="only the first mistake, in a line")
        new = acts.add_parser("new", help="write a working agent with a gate, and its test")
        new.add_argument("name", help="lower case letters, digits and _, such as refunds")
        new.add_argument("--folder", type=Path, help="where to write it; the default is AGENTS_DIR")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["act"] == "new":
            name, folder = options["name"], options["folder"] or settings.AGENTS_DIR
            target = Path(folder) if folder else None
            if target is None:
                raise CommandError("say where to write it: AGENTS_DIR=~/my-agents or --folder")
            try:
                written = write(name, target.expanduser().absolute())
            except (DefinitionError, OSError) as exc:
                raise CommandError(str(exc)) from exc
            for path in written:
                self.stdout.write(str(path))
            self.stdout.write(
                f"Try it: make test TESTS={written[1]}\n"
                f"Run it: make up AGENTS_DIR={written[0].parent} SIGNOFF_AGENTS={name}"
            )
            return
        with _no_longer_than(MAX_IMPORT_SECONDS):
            loaded = survey(settings.SIGNOFF_AGENTS, settings.AGENTS_DIR)
        if options["brief"]:
            if problems := [*map(str, loaded.mistakes)] or _list_missing_settings(loaded):
                remaining = len(problems) - 1
                suffix = f" ({remaining} more: make agents lists all)" if remaining else ""
                raise SystemExit(f"signoff: {problems[0]}{suffix}")
            return
        mistakes = [*map(str, loaded.mistakes), *_list_missing_settings(loaded)]
        counted = [(len(loaded.registry.agents), "agent"), (len(mistakes), "mistake")]
        counts = (f"{n or 'no'} {noun}{'' if n == 1 else 's'}" for n, noun in counted)
        for line in (*list_agents(loaded.sources), *mistakes, ", ".join(counts)):
            self.stdout.write(line)
        if mistakes:
            raise SystemExit(1)


def list_agents(sources: tuple[AgentModule, ...]) -> Iterator[str]:
    """List each agent once, under the first module that has it."""
    listed: set[str] = set()
    for source in sources:
        yield f"{source.module}  {source.file}".rstrip()
        for agent in (member for root in source.agents for member in walk_family(root)):
            if agent.name not in listed:
                listed.add(agent.name)
                yield from _describe_agent(agent)


def write(name: str, folder: Path) -> list[Path]:
    """Write the files into the folder and return them. Raise DefinitionError rather than replace one.

    A conftest.py that is there is kept, and not among the returned files.
    """
    fields.check_name(name, "NAME")
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


def _list_missing_settings(loaded: Survey) -> list[str]:
    """List the settings that agents lack."""
    if not loaded.registry.agents and not loaded.mistakes:
        return ["no agents are configured: name their modules in SIGNOFF_AGENTS"]
    # Importing the model layer takes a third of the start; mistakes in modules are reported without it.
    from agents.llm.providers import list_lacking_settings

    return [*list_lacking_settings(loaded.registry)]


@contextmanager
def _no_longer_than(seconds: float) -> Iterator[None]:
    """Interrupt an import that takes longer, at its present line."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"its import has not ended after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _describe_agent(agent: AgentSpec) -> Iterator[str]:
    from agents.llm.providers import list_models  # a brief check needs no library of models

    yield f"  {agent.name}: {agent.description}"
    yield f"    model {', '.join(list_models(agent)) or 'none'}"
    if agent.prompt_name:
        yield f"    prompt {agent.prompt_name}, which people may replace"
    if agent.output is not None:
        yield f"    result {agent.output.__name__}"
    if agent.answer is not None:
        yield f"    answer held: {', '.join(_format_tool(agent, agent.answer))}"
    if (memory := agent.thread_memory) is not None:
        summary = f"a summary of its thread, of at most {memory.summary} tokens"
        last = f"the last {memory.last} texts of its thread"
        yield f"    remembers {summary if memory.summary else last}"
    if agent.steps:
        yield f"    plan {', '.join(agent.steps)}"
    for tool in agent.tools:
        yield f"    tool {tool.name}: {', '.join(_format_tool(agent, tool))}"
    for child in agent.subagents:
        suffix = f", {ASKED}" if agent.requires_approval(Risk.LOW, by_tool=False) else ""
        yield f"    sub-agent {child.name}{suffix}"
    for gate in _describe_gates(agent):
        yield f"    stops {gate}"


def _format_tool(agent: AgentSpec, tool: ToolSpec) -> Iterator[str]:
    yield f"{tool.effect}"
    yield f"risk {DEPENDS if callable(tool.risk) else tool.risk}"
    if tool.plan:
        yield "keeps the agent's plan"
    if tool.holds_text:
        yield "its text is held until it is released"
    if tool.waits:
        yield f"waits for {_AWAITED[tool.waits]}"
    approval = agent.approval_of(tool)
    if approval == DEPENDS:
        yield SOME_ASKED
    elif approval:
        yield ASKED
    elif tool.waived:
        yield WAIVED
    if tool.settings.deadline is not None:
        yield f"deadline {tool.deadline:g} s"
    if tool.settings.expires_in is not None:
        yield f"{tool.settings.expires_in:g} s to decide"


def _describe_gates(agent: AgentSpec) -> Iterator[str]:
    """List where the agent stops until a person continues it."""
    if agent.holds.every is not None:
        yield f"after every {agent.holds.every} replies"
    if agent.holds.after is not None:
        yield f"after {agent.holds.after:g} seconds of work"
    if agent.holds.when is not None:
        yield f"when {agent.holds.when.__name__} says so"
    if agent.budget is not None:
        yield "when its budget is used up"
