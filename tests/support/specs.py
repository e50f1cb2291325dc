"""Agents, frames and tool requests for tests to which most of their parts do not matter."""

from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

from pydantic import BaseModel

from agents.effect_handler import AgentEffects
from agents.registry import Registry
from agents.sdk import agent, tool
from agents.sdk.scripts import Reply, Turn, say, script
from agents.sdk.spec import AgentSpec
from runtime.core.run.continuation import Call
from runtime.core.run.events import Proposal
from runtime.execution.effects.perform import perform
from runtime.ports.effects import ModelAnswer, ModelFailure, ModelRequest, ToolRequest

RUN = UUID("0192f1c2-0000-7000-8000-000000000001")


class Frame:
    """One frame of one agent: `ask` gives the model's next reply, `settle` the results of its calls."""

    def __init__(self, handler: AgentEffects, agent: str, content: Any) -> None:
        self.handler = handler
        self.agent = agent
        self.turn = 0
        self.tools: list[str] = []
        self.calls: tuple[Call, ...] = ()
        self.model = ""
        self.messages: list[dict[str, Any]] = [{"role": "input", "content": content}]

    def ask(self) -> ModelAnswer:
        answer = perform(self.handler, self.request())
        assert isinstance(answer, ModelAnswer), answer
        self.take(answer)
        return answer

    def take(self, answer: ModelAnswer) -> None:
        """Add a reply and its calls to the conversation."""
        self.turn += 1
        self.tools = [call.tool for call in answer.calls]
        calls = [
            Call(id=f"c{self.turn}.{index}", tool=one.tool, args=one.args)
            for index, one in enumerate(answer.calls)
        ]
        ids = [call.id for call in calls]
        self.calls += tuple(calls)
        self.messages.append(
            {"role": "model", "reply": answer.reply, "text": answer.text, "calls": ids}
        )

    def fault(self, deadline: float = 10.0) -> ModelFailure:
        """The failure of a model call."""
        outcome = perform(self.handler, self.request(deadline))
        assert isinstance(outcome, ModelFailure), outcome
        return outcome

    def settle(self, *results: tuple[str, Any]) -> None:
        """One (outcome, content) for each call of the turn, in their order."""
        told = [
            {"call": f"c{self.turn}.{index}", "tool": tool, "outcome": outcome, "content": content}
            for index, (tool, (outcome, content)) in enumerate(
                zip(self.tools, results, strict=True)
            )
        ]
        self.messages.append({"role": "results", "results": told})

    def question(self, text: str) -> ModelRequest:
        """The request with a question about the last turn, none of whose calls has a result."""
        waiting = [
            {"call": f"c{self.turn}.{index}", "tool": tool, "outcome": "waiting", "content": ""}
            for index, tool in enumerate(self.tools)
        ]
        asked = {"role": "question", "by": "bea", "content": text, "tool": self.tools[0]}
        more = ({"role": "results", "results": waiting}, {**asked, "call": f"c{self.turn}.0"})
        request = self.request()
        return replace(request, messages=(*request.messages, *more), inquiry=uuid4())

    def request(self, deadline: float = 10.0) -> ModelRequest:
        return ModelRequest(
            run=RUN,
            frame="0",
            agent=self.agent,
            messages=tuple(self.messages),
            deadline=deadline,
            model=self.model,
            calls=self.calls,
        )


TOLD: dict[str, Any] = {"run": str(RUN), "by": "ada", "at": "2026-01-01T09:00:00+00:00"}
MEMORY = (
    {**TOLD, "kind": "asked", "text": "Who\nleft?"},
    {**TOLD, "kind": "answered", "text": "Zaphod."},
    {**TOLD, "kind": "asked", "text": None},
)
MEMORY_LINES = [
    '{"at": "2026-01-01T09:00:00+00:00", "asked_by": "ada", "text": "Who\\nleft?"}',
    '{"at": "2026-01-01T09:00:00+00:00", "answered_by": "you", "text": "Zaphod."}',
    '{"at": "2026-01-01T09:00:00+00:00", "asked_by": "ada", "erased": true}',
]
NEWCOMER: dict[str, Any] = {
    "full_name": "New Hire",
    "email": "new.hire@example.com",
    "username": "new.hire",
    "security_level": 3,
}
CREATE = Proposal(
    tool="create_account",
    args={"full_name": "New Hire", "email": "new.hire@example.com", "username": "new.hire"},
)


class Input(BaseModel):
    name: str


class Question(BaseModel):
    text: str


@script
def silent(_: Turn) -> Reply:
    """Answer for any agent."""
    return say("")


def spec_of(name: str = "a", **given: Any) -> AgentSpec:
    plain = {"description": "A.", "instructions": "Do.", "input": Input, "model": silent}
    return agent(name=name, **{**plain, **given})


def registry_of(*specs: AgentSpec) -> Registry:
    return Registry(agents={spec.name: spec for spec in specs})


def handler_of(*specs: AgentSpec) -> AgentEffects:
    """The handler of a worker, which leaves the connections of Django as they are."""
    return AgentEffects(registry_of(*specs), close_connections=lambda: None)


def tool_request(agent: str, tool: str, args: Any, **given: Any) -> ToolRequest:
    """The first call of a run."""
    call = {"run": RUN, "frame": "0", "call": "c1.0", "attempt": 1, "deadline": 5.0, **given}
    key = f"{call['run']}/0/{call['call']}"
    return ToolRequest(agent=agent, tool=tool, args=args, **{"key": key, **call})


@tool(effect="idempotent", risk="medium", sentence="Greet {name}")
def greet(name: str) -> str:
    """Greet somebody."""
    return name


def child(description: str = "Helps.") -> AgentSpec:
    return spec_of("helper", description=description)


def version(**changed: Any) -> AgentSpec:
    """A version of an agent that has a tool and a sub-agent."""
    parts = {"instructions": "Greet.\nBe kind.", "tools": [greet], "subagents": [child()]}
    return spec_of(**{"name": "greeter", **parts, **changed})
