"""CrewAI: a crew with one task, resumed from its checkpoint."""

from pathlib import Path
from typing import Any

from agentapprovalprotocol.crewai import ApprovalHooks
from crewai import Agent, Crew, Task
from crewai.llms.base_llm import BaseLLM
from crewai.state.checkpoint_config import CheckpointConfig
from crewai.tools import BaseTool
from scripted import Plan, serve

PLANS: list[Plan] = []
SEEN: list[str] = []


class ScriptedModel(BaseLLM):
    def supports_function_calling(self) -> bool:
        return True

    def call(self, messages: Any, *_: Any, **options: Any) -> Any:
        results = [m for m in messages if isinstance(m, dict) and m.get("role") == "tool"]
        if results:
            SEEN[:] = [str(m["content"]) for m in results]
            return "Done."
        return [
            {"id": name, "function": {"name": "pay", "arguments": arguments}}
            for name, arguments in PLANS[-1].calls()
        ]


class Pay(BaseTool):
    name: str = "pay"
    description: str = "Pay an amount."

    def _run(self, amount: int) -> str:
        return PLANS[-1].pay(amount)


def run(plan: Plan) -> list[str]:
    PLANS.append(plan)
    folder = Path(plan.state("crewai"))
    agent = Agent(
        role="Payer",
        goal="Pay",
        backstory="Pays.",
        llm=ScriptedModel(model="scripted"),
        tools=[Pay()],
    )
    task = Task(description="Pay the invoices.", expected_output="Payments", agent=agent)
    checkpoints = CheckpointConfig(location=str(folder), on_events=["task_started"])
    crew = Crew(agents=[agent], tasks=[task], checkpoint=checkpoints)
    saved = sorted(folder.rglob("*.json"), key=lambda path: path.stat().st_mtime)
    if saved:
        crew = Crew.from_checkpoint(CheckpointConfig(restore_from=str(saved[-1])))
        for worker in crew.agents:
            worker.llm = ScriptedModel(model="scripted")
    with ApprovalHooks(plan.url, plan.token, timeout=plan.timeout):
        crew.kickoff()
    return list(SEEN)


serve(run)
