"""The agents of this process: loads the configured modules, or says in one line why that is impossible."""

import importlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType

from agents.errors import DefinitionError, RegistryError
from agents.spec import AgentSpec, ToolSpec
from runtime.ports import UnknownAgent


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """Agents by name, sub-agents included."""

    agents: Mapping[str, AgentSpec]

    def get(self, name: str) -> AgentSpec:
        """Raise UnknownAgent if this process has no such agent."""
        try:
            return self.agents[name]
        except KeyError:
            raise UnknownAgent(f"this worker has no agent named {name}") from None

    def tools(self) -> Iterator[ToolSpec]:
        """Every tool of every agent."""
        for agent in self.agents.values():
            yield from agent.tools


def load(modules: Iterable[str]) -> Registry:
    """Import `modules` and collect the agents assigned to their names, with all their sub-agents.

    Raises RegistryError, with one line that says what to change.
    """
    agents: dict[str, AgentSpec] = {}
    homes: dict[str, str] = {}
    for name in modules:
        for agent in _agents_of(_import(name)):
            if agents.setdefault(agent.name, agent) is not agent:
                raise RegistryError(
                    f"two agents are named {agent.name}: one in {homes[agent.name]}, one in {name}"
                )
            homes.setdefault(agent.name, name)
    if not agents:
        raise RegistryError("no agents are configured: name their modules in ABEYANCE_AGENTS")
    return Registry(agents=agents)


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except DefinitionError as exc:
        raise RegistryError(f"cannot load agents from {name}: {exc}") from exc
    except Exception as exc:
        said = " ".join(f"{type(exc).__name__}: {exc}".split())
        raise RegistryError(f"cannot load agents from {name}: {said}") from exc


def _agents_of(module: ModuleType) -> Iterator[AgentSpec]:
    found = [value for value in vars(module).values() if isinstance(value, AgentSpec)]
    if not found:
        raise RegistryError(f"cannot load agents from {module.__name__}: it defines no agent")
    for agent in found:
        yield from family(agent)


def family(agent: AgentSpec) -> Iterator[AgentSpec]:
    """The agent, and every agent below it."""
    yield agent
    for child in agent.subagents:
        yield from family(child)
