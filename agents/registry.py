"""Loads the agents of the configured modules, or says in one line why it cannot."""

import importlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from agents.errors import RegistryError
from agents.sdk.mistakes import ImportedModule, Mistake, Unusable, collect_mistakes
from agents.sdk.spec import AgentSpec, ToolSpec
from runtime.errors import UnknownAgent


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """Agents by name, sub-agents included."""

    agents: Mapping[str, AgentSpec]

    def get(self, name: str) -> AgentSpec:
        """Return an agent by name. Raise UnknownAgent if this process does not have it."""
        try:
            return self.agents[name]
        except KeyError:
            raise UnknownAgent(f"this worker has no agent named {name}") from None

    def tools(self) -> Iterator[ToolSpec]:
        """Yield every tool of every agent."""
        for agent in self.agents.values():
            yield from agent.tools


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentModule:
    """A module that was read, its file, and the agents that it assigns to names."""

    module: str
    file: str
    agents: tuple[AgentSpec, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """The agents of the configured modules, and every mistake in them."""

    registry: Registry
    sources: tuple[AgentModule, ...]
    mistakes: tuple[Mistake, ...]


def load(modules: Iterable[str], folder: str = "") -> Registry:
    """Import `modules` and collect the agents assigned to their names, with all their sub-agents.

    `folder` is searched last, so that no module there hides another. Raise RegistryError, with one line that says
    what to change.
    """
    configured = survey(modules, folder)
    if configured.mistakes:
        raise RegistryError(str(configured.mistakes[0]))
    if not configured.registry.agents:
        raise RegistryError("no agents are configured: name their modules in SIGNOFF_AGENTS")
    return configured.registry


def survey(modules: Iterable[str], folder: str) -> Survey:
    """Load modules like `load`, but continue after a mistake."""
    if folder and folder not in sys.path:
        sys.path.append(folder)
    sources: list[AgentModule] = []
    mistakes: list[Mistake] = []
    for name in modules:
        reading = ImportedModule(module=name, folder=folder)
        module = _import(reading)
        if module is None:
            sources.append(AgentModule(module=name, file="", agents=()))
        else:
            file = getattr(module, "__file__", None) or ""
            values = vars(module).values()
            if not any(isinstance(value, AgentSpec | Unusable) for value in values):
                reading.add(f"it defines no agent{_describe_hidden_module(module, reading)}", file)
            members = tuple(value for value in values if isinstance(value, AgentSpec))
            sources.append(AgentModule(module=name, file=file, agents=members))
        mistakes += [
            mistake
            for mistake in reading.mistakes
            if mistake.location
            not in {earlier.location for earlier in mistakes if earlier.location}
        ]
    agents: dict[str, AgentSpec] = {}
    homes: dict[str, str] = {}
    twice: list[Mistake] = []
    for source in sources:
        for agent in (member for root in source.agents for member in walk_family(root)):
            home = homes.setdefault(agent.name, source.module)
            if agents.setdefault(agent.name, agent) is not agent:
                problem = (
                    f"two agents are named {agent.name}: one in {home}, one in {source.module}"
                )
                twice.append(Mistake(module=source.module, location=source.file, problem=problem))
    return Survey(
        registry=Registry(agents=agents), sources=tuple(sources), mistakes=(*mistakes, *twice)
    )


def _import(reading: ImportedModule) -> ModuleType | None:
    """Import a module. If that fails, note the mistake and return None."""
    try:
        if find_spec(reading.module.partition(".")[0]) is None:
            folder = reading.folder or "AGENTS_DIR, which is not set,"
            reading.add(f"there is no such module in {folder} or among the installed packages")
            return None
        with collect_mistakes(reading):
            return importlib.import_module(reading.module)
    except (Exception, SystemExit) as exc:
        reading.add_exit(exc)
        return None


def _describe_hidden_module(module: ModuleType, reading: ImportedModule) -> str:
    """Say that a module outside the author's folder hides one in it, or return an empty text."""
    if not reading.folder or Path(reading.folder) in Path(module.__file__ or "").parents:
        return ""
    top = Path(reading.folder, module.__name__.partition(".")[0])
    paths = [path for path in (top.with_suffix(".py"), top / "__init__.py") if path.exists()]
    return f", and is found before {paths[0]}: give yours another name" if paths else ""


def walk_family(agent: AgentSpec) -> Iterator[AgentSpec]:
    """Yield the agent and every agent below it."""
    yield agent
    for child in agent.subagents:
        yield from walk_family(child)
