"""The frameworks whose agents ask here, each with its program and the lock of its environment."""

import json
import os
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path

from config.env.environment import ROOT
from tests.interop.environments import python_of

PROGRAMS = ROOT / "tests/interop/programs"


@dataclass(frozen=True, slots=True)
class Framework:
    """Agents of one package. `in_every_run`: in `make test` too."""

    name: str
    program: str
    lock: str
    in_every_run: bool = False


FRAMEWORKS = (
    Framework("LangGraph", "langgraph_agent", "interop", in_every_run=True),
    Framework("Pydantic AI", "pydantic_ai_agent", "interop", in_every_run=True),
    Framework("OpenAI Agents", "openai_agents_agent", "interop-more"),
    Framework("Google ADK", "adk_agent", "interop-more"),
    Framework("Claude hook", "claude_hook", "interop-more"),
    Framework("CrewAI", "crewai_agent", "interop-crewai"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What an agent does, as tests/interop/programs/scripted.py reads it."""

    url: str
    token: str
    thread: str
    timeout: str
    amounts: tuple[int, ...]
    folder: str
    block: str = ""

    @property
    def payments(self) -> list[int]:
        """The payments that were made."""
        file = Path(self.folder) / "payments"
        return [int(line) for line in file.read_text().split()] if file.exists() else []


class Program:
    """A process that runs one agent after the other."""

    def __init__(self, framework: Framework, home: Path) -> None:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            # Nothing leaves this machine: the proxy does not exist.
            **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9"),
            "NO_PROXY": "127.0.0.1",
            "CREWAI_DISABLE_TELEMETRY": "true",
            "CREWAI_TRACING_ENABLED": "false",
            "OTEL_SDK_DISABLED": "true",
        }
        with (home / f"{framework.program}.log").open("ab") as log:
            self.process = subprocess.Popen(
                [python_of(framework.lock), PROGRAMS / f"{framework.program}.py"],
                env=environment,
                cwd=home,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def begin(self, plan: Plan) -> None:
        """Begin the agent, and do not wait."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(asdict(plan)) + "\n")
        self.process.stdin.flush()

    def results(self) -> list[str]:
        """Wait for the end of the agent: what its model read of its calls."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the program ended; its log says why"
        results: list[str] = json.loads(line)
        return results

    def kill(self) -> None:
        """kill -9, if it still runs."""
        self.process.kill()
        self.process.communicate()
