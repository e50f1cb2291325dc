"""OpenAI Agents SDK: a run that has a name, and begins again under it."""

import asyncio
import json
from typing import Any

from agentapprovalprotocol.openai_agents import Approvals
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)
from scripted import REASONING, Plan, serve

from agents import Agent, Model, ModelResponse, Runner, Usage, function_tool, set_tracing_disabled


class ScriptedModel(Model):
    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    async def get_response(
        self, system_instructions: Any, input: Any, *_: Any, **options: Any
    ) -> ModelResponse:
        texts = isinstance(input, str)
        ended = not texts and any(item.get("type") == "function_call_output" for item in input)
        output: list[Any] = [_text("Done." if ended else REASONING)]
        if not ended:
            output += [
                ResponseFunctionToolCall(
                    type="function_call", name="pay", call_id=name, arguments=json.dumps(arguments)
                )
                for name, arguments in self.plan.calls()
            ]
        return ModelResponse(output=output, usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **options: Any) -> Any:
        raise NotImplementedError  # the base class demands it; no run here is streamed


def _text(text: str) -> ResponseOutputMessage:
    content = ResponseOutputText(type="output_text", text=text, annotations=[])
    return ResponseOutputMessage(
        id="message", type="message", role="assistant", status="completed", content=[content]
    )


def run(plan: Plan) -> list[str]:
    async def pay(amount: int) -> str:
        """Pay an amount."""
        return plan.pay(amount)

    async def drive() -> list[str]:
        model, tools = ScriptedModel(plan), [function_tool(pay)]
        if plan.block:
            agent = plan.execute(model=model, tools=tools)
            result = await Runner.run(agent, "Pay the invoices.")
        else:
            approvals = Approvals(plan.url, plan.token, timeout=plan.timeout)
            agent = approvals.protect(Agent(name="Payer", model=model, tools=tools))
            result = await approvals.run(agent, "Pay the invoices.", run_id=plan.thread)
        items = result.to_input_list()
        return [str(item["output"]) for item in items if item.get("type") == "function_call_output"]

    return asyncio.run(drive())


set_tracing_disabled(True)
serve(run)
