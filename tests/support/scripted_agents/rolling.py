"""Two releases of the same agents, each in its own folder, and the ledger of their effects outside."""

from pathlib import Path

MODULE = "releases"

# The releases differ in `{more}` and `{tools}`.
SOURCE = '''
"""Agents that note twice, each time after an approval."""

from pydantic import BaseModel

from agents.sdk.scripts import Reply, Turn, call, say, script
from agents.sdk import agent, tool
from tests.support.scripted_agents.holding import write


class Errand(BaseModel):
    name: str


@tool(effect="write", approval=True, sentence="Note {{name}} {{step}}")
def note_down(name: str, step: int) -> str:
    """Write a line into the ledger."""
    write(f"note{{step}}", "begin", name)
    return "noted"


{more}


@script
def noting(turn: Turn) -> Reply:
    """Plays additive."""
    if len(turn.results) < 2:
        return call("note_down", name=turn.input["name"], step=len(turn.results) + 1)
    return say("Noted twice.")


additive = agent(
    name="additive",
    description="Notes twice.",
    instructions="Note twice.",
    input=Errand,
    model=noting,
    tools={tools},
)
'''

MORE = '''
@tool(effect="read")
def look_up(name: str) -> str:
    """Look something up."""
    return name
'''


def write_releases(folder: Path) -> tuple[Path, Path]:
    """The folders of the old and the new release, which any account may read."""
    old, new = folder / "old", folder / "new"
    _write(old, more="", tools="[note_down]")
    _write(new, more=MORE, tools="[note_down, look_up]")
    return old, new


def _write(folder: Path, **parts: str) -> None:
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    module = folder / f"{MODULE}.py"
    module.write_text(SOURCE.format(**parts))
    module.chmod(0o644)
