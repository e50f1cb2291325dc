"""A frame's messages as the core keeps them, and a frame driven by hand."""

from typing import Any
from uuid import UUID

from agents.effect_handler import AgentEffects
from runtime.core.continuation import Call
from runtime.execution.effects.perform import perform
from runtime.ports.effects import ModelAnswer, ModelFailure, ModelRequest

RUN = UUID("0192f1c2-0000-7000-8000-000000000001")


class Frame:
    """One frame of one agent: `ask` gives the model's next reply, `settle` the results of its calls."""

    def __init__(self, handler: AgentEffects, agent: str, content: Any) -> None:
        self.handler = handler
        self.agent = agent
        self.turn = 0
        self.tools: list[str] = []
        self.calls: tuple[Call, ...] = ()
        self.messages: list[dict[str, Any]] = [{"role": "input", "content": content}]

    def ask(self) -> ModelAnswer:
        answer = perform(self.handler, self.request())
        assert isinstance(answer, ModelAnswer), answer
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
        return answer

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

    def request(self, deadline: float = 10.0) -> ModelRequest:
        return ModelRequest(
            run=RUN,
            frame="0",
            agent=self.agent,
            messages=tuple(self.messages),
            deadline=deadline,
            calls=self.calls,
        )
