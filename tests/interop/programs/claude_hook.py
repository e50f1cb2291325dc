"""Claude Agent SDK: its hooks, called as its command line calls them before and after a tool."""

import asyncio

from agentapprovalprotocol.claude_agent_sdk import ApprovalHooks
from scripted import Plan, serve


def run(plan: Plan) -> list[str]:
    async def use(hooks: ApprovalHooks, id: str, arguments: dict[str, int]) -> str:
        call = {"session_id": plan.thread, "tool_name": "pay", "tool_input": arguments}
        before = {**call, "hook_event_name": "PreToolUse", "tool_use_id": id}
        decision = (await hooks.pre_tool_use(before, id))["hookSpecificOutput"]
        if decision["permissionDecision"] != "allow":
            return str(decision["permissionDecisionReason"])
        result = plan.pay(**arguments)
        after = {**call, "hook_event_name": "PostToolUse", "tool_response": {"text": result}}
        await hooks.post_tool_use({**after, "tool_use_id": id}, id)
        return result

    async def drive() -> list[str]:
        hooks = ApprovalHooks(plan.url, plan.token, timeout=plan.timeout)
        return list(await asyncio.gather(*(use(hooks, *call) for call in plan.calls())))

    return asyncio.run(drive())


serve(run)
