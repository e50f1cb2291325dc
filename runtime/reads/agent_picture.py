"""Draws an agent with its tools and the agents below it as a tree, and how far a run has come in it.

Each agent is drawn once, as near to the top as it is called, and only named elsewhere. So agents that call each other
end, and each call has one place: its agent and its tool.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from runtime.core.values.enums import CallState
from runtime.ports.agents import AgentParts, Asking
from runtime.reads.trace.frames import FrameRecord

MAX_AGENTS = 30  # drawn
MAX_PARTS = 12  # tools of one agent, and agents that it calls


class Standing(StrEnum):
    """How far a run has come with a tool or an agent. Of several calls the first of these is told."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    TO_COME = "to_come"


_STANDINGS = {
    CallState.PROPOSED: Standing.TO_COME,
    CallState.ADMITTED: Standing.RUNNING,
    CallState.GATED: Standing.WAITING,
    CallState.REFUSED: Standing.FAILED,
    CallState.DENIED: Standing.FAILED,
    CallState.STARTED: Standing.RUNNING,
    CallState.RETRYING: Standing.RUNNING,
    CallState.WAITING: Standing.WAITING,
    CallState.DELEGATED: Standing.RUNNING,
    CallState.RETURNED: Standing.DONE,
    CallState.FAILED: Standing.FAILED,
    CallState.UNKNOWN: Standing.WAITING,
    CallState.CLOSED: Standing.FAILED,
}
_ORDER = tuple(Standing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What a run did with a tool or an agent: how often, and the step that tells of it."""

    standing: Standing = Standing.TO_COME
    calls: int = 0
    step: str = ""

    def add_progress(self, later: "Progress") -> "Progress":
        """Add a later one."""
        is_told = _ORDER.index(later.standing) <= _ORDER.index(self.standing)
        return replace(later if is_told else self, calls=self.calls + later.calls)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """An agent or a tool in the picture. `progress` is None outside of a run.

    An agent that is drawn elsewhere, or not at all, has no parts here. `more_tools` and `more_agents` count the parts
    that are left out. `is_published` says that an agent has a page.
    """

    name: str
    asking: Asking
    progress: Progress | None
    is_published: bool = False
    tools: "tuple[Part, ...]" = ()
    agents: "tuple[Part, ...]" = ()
    more_tools: int = 0
    more_agents: int = 0

    def walk_tools(self) -> "Iterator[Part]":
        """Yield the tools of the agent and of those below it."""
        yield from self.tools
        for agent in self.agents:
            yield from agent.walk_tools()


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPicture:
    """The picture of `root`, and numbers: its agents, its tools, the tools that ask a person, and standings."""

    root: Part
    agents: int
    tools: int
    asking: int
    standings: Mapping[str, int]


def draw(
    name: str, family: Mapping[str, AgentParts], frames: Sequence[FrameRecord] | None = None
) -> AgentPicture:
    """Draw an agent by the parts of its family; with `frames` also how far they came, and parts not published."""
    drawing = _Drawing(
        published=family,
        parts=family if frames is None else _join_used_parts(family, frames),
        progress=None if frames is None else _compute_progress(frames),
    )
    drawing.find_callers(name)
    root = drawing.agent(name, "", Asking.NEVER)
    tools = tuple(root.walk_tools())
    return AgentPicture(
        root=root,
        agents=len(drawing.callers),
        tools=len(tools),
        asking=sum(tool.asking is not Asking.NEVER for tool in tools),
        standings=Counter(tool.progress.standing.value for tool in tools if tool.progress),
    )


_Progresses = Mapping[tuple[str, str], Progress]


@dataclass(slots=True, kw_only=True)
class _Drawing:
    """Draws by `parts`. `callers` has for each drawn agent the one below which it is drawn."""

    published: Mapping[str, AgentParts]
    parts: Mapping[str, AgentParts]
    progress: _Progresses | None
    callers: dict[str, str] = field(default_factory=dict)

    def find_callers(self, root: str) -> None:
        """Find the place of each agent, those nearest to the root first."""
        self.callers[root] = ""
        agents = [root]
        for caller in agents:
            for name in self._children(caller):
                if name not in self.callers and len(agents) < MAX_AGENTS:
                    self.callers[name] = caller
                    agents.append(name)

    def agent(self, name: str, caller: str, asking: Asking) -> Part:
        """Draw an agent with all below it, or only its name if its place is elsewhere."""
        drawing = Part(
            name=name,
            asking=asking,
            progress=self._progress((name, ""), (caller, name)),
            is_published=name in self.published,
        )
        if self.callers.get(name) != caller or name not in self.parts:
            return drawing
        parts, children = self.parts[name], self._children(name)
        tools = list(parts.tools)[:MAX_PARTS]
        return replace(
            drawing,
            tools=tuple(
                Part(name=tool, asking=parts.tools[tool], progress=self._progress((name, tool)))
                for tool in tools
            ),
            agents=tuple(self.agent(child, name, parts.agents[child]) for child in children),
            more_tools=len(parts.tools) - len(tools),
            more_agents=len(parts.agents) - len(children),
        )

    def _children(self, name: str) -> list[str]:
        return list(self.parts[name].agents)[:MAX_PARTS] if name in self.parts else []

    def _progress(self, *keys: tuple[str, str]) -> Progress | None:
        if self.progress is None:
            return None
        progress = Progress()
        for key in keys:
            progress = progress.add_progress(self.progress.get(key, Progress()))
        return progress


def _compute_progress(frames: Iterable[FrameRecord]) -> _Progresses:
    """Return what each agent did by its name and an empty one, and what each of its tools did by both names."""
    progress: dict[tuple[str, str], Progress] = defaultdict(Progress)
    is_over = False
    for frame in frames:
        is_over = is_over or (frame.parent is None and frame.outcome is not None)
        if frame.outcome is not None or is_over:
            standing = Standing.DONE if frame.outcome == "answered" else Standing.FAILED
        else:
            standing = Standing.WAITING if frame.waiting else Standing.RUNNING
        steps = [((frame.agent, ""), standing, frame.id)]
        steps += [
            ((frame.agent, call.tool), _STANDINGS[call.state], f"{frame.id}/{call.id}")
            for call in frame.calls
            if call.id not in frame.children
        ]
        for key, standing, step in steps:
            progress[key] = progress[key].add_progress(
                Progress(standing=standing, calls=1, step=step)
            )
    return progress


def _join_used_parts(
    family: Mapping[str, AgentParts], frames: Iterable[FrameRecord]
) -> Mapping[str, AgentParts]:
    """Return the parts with those that a run used, though they are not published now."""
    parts = {
        name: AgentParts(tools=dict(member.tools), agents=dict(member.agents))
        for name, member in family.items()
    }
    for frame in frames:
        member = parts.setdefault(frame.agent, AgentParts(tools={}, agents={}))
        for call in frame.calls:
            child = frame.children.get(call.id)
            if child is not None:
                member.agents.setdefault(child.agent, Asking.NEVER)
            elif call.tool not in member.agents:
                member.tools.setdefault(call.tool, Asking.NEVER)
    return parts
