"""Google ADK: an application that can be resumed, with its session on disk."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from agentapprovalprotocol.adk import ApprovalPlugin, check_coverage
from google.adk.agents import LlmAgent
from google.adk.apps import App, ResumabilityConfig
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import Runner
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types
from scripted import REASONING, Plan, serve


class ScriptedModel(BaseLlm):
    plan: Plan

    async def generate_content_async(
        self, llm_request: Any, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        parts = [part for content in llm_request.contents for part in content.parts or []]
        if any(part.function_response for part in parts):
            reply = [types.Part(text="Done.")]
        else:
            calls = [
                types.FunctionCall(id=name, name="pay", args=arguments)
                for name, arguments in self.plan.calls()
            ]
            reply = [
                types.Part(text=REASONING),
                *(types.Part(function_call=call) for call in calls),
            ]
        yield LlmResponse(content=types.Content(role="model", parts=reply))


def run(plan: Plan) -> list[str]:
    async def pay(amount: int) -> str:
        """Pay an amount."""
        return plan.pay(amount)

    async def drive() -> list[str]:
        approvals = ApprovalPlugin(plan.url, plan.token, timeout=plan.timeout)
        agent = LlmAgent(
            name="payer", model=ScriptedModel(model="scripted", plan=plan), tools=[pay]
        )
        resumable = ResumabilityConfig(is_resumable=True)
        app = App(
            name="payments", root_agent=agent, plugins=[approvals], resumability_config=resumable
        )
        check_coverage(app, approvals)
        sessions = SqliteSessionService(plan.state("adk.db"))
        names = {"app_name": "payments", "user_id": "ada", "session_id": plan.thread}
        session = await sessions.get_session(**names)
        if session is None:
            session = await sessions.create_session(**names)
        runner = Runner(app=app, session_service=sessions)
        start: dict[str, Any] = {
            "new_message": types.Content(role="user", parts=[types.Part(text="Pay the invoices.")])
        }
        if session.events:
            start = {"invocation_id": session.events[-1].invocation_id}
        results = []
        async for event in runner.run_async(user_id="ada", session_id=plan.thread, **start):
            results += [str(answer.response) for answer in event.get_function_responses()]
        return results

    return asyncio.run(drive())


serve(run)
