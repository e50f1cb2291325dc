"""Lists the agents of a survey as text: model, tools, effect classes and approvals."""

from collections.abc import Iterator

from agents.llm.providers import models_of
from agents.registry import AgentModule, family
from agents.sdk.spec import DEPENDS, AgentSpec, ToolSpec
from agents.sdk.thread_memory import ThreadMemory
from runtime.core.values.enums import Risk

ASKED = "a person approves each call"
SOME_ASKED = "a person approves some calls, depending on their arguments"
WAIVED = "no person is asked, although the tool asks for one"


def lines(sources: tuple[AgentModule, ...]) -> Iterator[str]:
    """List each agent once, under the first module that has it."""
    listed: set[str] = set()
    for source in sources:
        yield f"{source.module}  {source.file}".rstrip()
        for agent in (each for one in source.agents for each in family(one)):
            if agent.name not in listed:
                listed.add(agent.name)
                yield from _agent(agent)


def _agent(agent: AgentSpec) -> Iterator[str]:
    yield f"  {agent.name}: {agent.description}"
    yield f"    model {', '.join(models_of(agent)) or 'none'}"
    if agent.prompt_name:
        yield f"    prompt {agent.prompt_name}, which people may replace"
    if agent.output is not None:
        yield f"    result {agent.output.__name__}"
    if agent.answer is not None:
        yield f"    answer held: {', '.join(_tool(agent, agent.answer))}"
    if agent.thread_memory is not None:
        yield f"    remembers {_memory(agent.thread_memory)}"
    if agent.steps:
        yield f"    plan {', '.join(agent.steps)}"
    for tool in agent.tools:
        yield f"    tool {tool.name}: {', '.join(_tool(agent, tool))}"
    for child in agent.subagents:
        suffix = f", {ASKED}" if agent.requires_approval(Risk.LOW, by_tool=False) else ""
        yield f"    sub-agent {child.name}{suffix}"
    for gate in _gates(agent):
        yield f"    stops {gate}"


def _tool(agent: AgentSpec, tool: ToolSpec) -> Iterator[str]:
    yield f"{tool.effect}"
    yield f"risk {DEPENDS if callable(tool.risk) else tool.risk}"
    if tool.plan:
        yield "keeps the agent's plan"
    if tool.holds_text:
        yield "its text is held until it is released"
    if tool.waits:
        yield f"waits for {'a time' if tool.waits == 'time' else 'an event'}"
    approval = agent.approval_of(tool)
    if approval == DEPENDS:
        yield SOME_ASKED
    elif approval:
        yield ASKED
    elif tool.waived:
        yield WAIVED
    if tool.settings.deadline is not None:
        yield f"deadline {tool.deadline:g} s"
    if tool.settings.expires_in is not None:
        yield f"{tool.settings.expires_in:g} s to decide"


def _memory(memory: ThreadMemory) -> str:
    if memory.summary:
        return f"a summary of its thread, of at most {memory.summary} tokens"
    return f"the last {memory.last} texts of its thread"


def _gates(agent: AgentSpec) -> Iterator[str]:
    """List where the agent stops until a person continues it."""
    if agent.holds.every is not None:
        yield f"after every {agent.holds.every} replies"
    if agent.holds.after is not None:
        yield f"after {agent.holds.after:g} seconds of work"
    if agent.holds.when is not None:
        yield f"when {agent.holds.when.__name__} says so"
    if agent.budget is not None:
        yield "when its budget is used up"
