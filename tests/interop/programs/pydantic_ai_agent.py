"""Pydantic AI: an agent whose conversation has a name, and begins again under it."""

from agentapprovalprotocol.pydantic_ai import ApprovalCapability
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from scripted import REASONING, Plan, serve


def run(plan: Plan) -> list[str]:
    def results(messages: list[ModelMessage]) -> list[ToolReturnPart]:
        parts = [part for message in messages for part in message.parts]
        return [part for part in parts if isinstance(part, ToolReturnPart)]

    def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if results(messages):
            return ModelResponse([TextPart("Done.")])
        calls = [ToolCallPart("pay", arguments, name) for name, arguments in plan.calls()]
        return ModelResponse([TextPart(REASONING), *calls])

    model, tools = FunctionModel(reply), [plan.pay]
    if plan.block:
        agent = plan.execute(model=model, tools=tools)
    else:
        approvals = ApprovalCapability(plan.url, plan.token, timeout=plan.timeout)
        agent = Agent(model, tools=tools, capabilities=[approvals])
    result = agent.run_sync("Pay the invoices.", conversation_id=plan.thread)
    return [str(part.content) for part in results(result.all_messages())]


serve(run)
