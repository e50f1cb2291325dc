"""LangGraph: an agent with a checkpointer, resumed from its checkpoint."""

from typing import Any

from agentapprovalprotocol.langgraph import ApprovalMiddleware
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.sqlite import SqliteSaver
from scripted import REASONING, Plan, serve

START: Any = {"messages": [("user", "Pay the invoices.")]}


class ScriptedModel(BaseChatModel):
    plan: Plan

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **options: Any) -> "ScriptedModel":
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **options: Any) -> ChatResult:
        if any(isinstance(message, ToolMessage) for message in messages):
            reply = AIMessage("Done.")
        else:
            calls = [
                {"name": "pay", "args": arguments, "id": name}
                for name, arguments in self.plan.calls()
            ]
            reply = AIMessage(REASONING, tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=reply)])


def run(plan: Plan) -> list[str]:
    model = ScriptedModel(plan=plan)
    pay = tool(plan.pay, description="Pay an amount.")
    if plan.block:
        return _results(plan.execute(model=model, tools=[pay]).invoke(START))
    approvals = ApprovalMiddleware(plan.url, plan.token, timeout=plan.timeout)
    config: Any = {"configurable": {"thread_id": plan.thread}}
    with SqliteSaver.from_conn_string(plan.state("langgraph.db")) as saver:
        agent = create_agent(model, tools=[pay], middleware=[approvals], checkpointer=saver)
        begun = agent.get_state(config).values
        start: Any = None if begun else START
        state = agent.invoke(start, config, durability="sync")
    return _results(state)


def _results(state: Any) -> list[str]:
    return [str(message.content) for message in state["messages"] if message.type == "tool"]


serve(run)
