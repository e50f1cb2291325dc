"""A gateway to an MCP server: an agent whose runs each make one call of a tool, for an MCP client at /api/mcp/NAME/.

It is an agent of code: its input names the tool and the arguments, and its result is what the client receives. So the
policy, edits, limits, the journal and the rules for a lost call apply as to any other call.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, WithJsonSchema, create_model

from agents.errors import DefinitionChanged, DefinitionError, ToolError
from agents.sdk import ToolContext, mistakes
from agents.sdk import agent as define
from agents.sdk.scripts import Reply, Script, Turn, answer, call, script
from agents.sdk.spec import APPROVAL_RESULT, AgentSpec, ToolSpec
from agents.tools.each import cut_text
from runtime.core.values.json_values import measure_size
from runtime.core.values.texts import clean_text

MAX_GATEWAY_RESULT = 200 * 1024  # bytes of a result as JSON; it is part of an agent's answer


class GatewayResult(BaseModel):
    """What the client receives: `result`, or `error` if the call failed or a person denied it.

    `edited` are the arguments of a call that a person changed. With `cut` the result is the beginning of its text.
    """

    result: Any = None
    error: str | None = None
    edited: dict[str, Any] | None = None
    cut: bool = False


@mistakes.record_mistakes
def mcp_gateway(name: str, tools: Sequence[ToolSpec], *, title: str = "") -> AgentSpec:
    """Make the gateway `/api/mcp/NAME/` to tools of `mcp_tools`, an agent of this name.

    Assign it to a name of the module. Clients are offered the tools as their accepted definitions describe them. A call
    of a tool whose definition changed is refused. Each call is a run of the person whose API token the client has.
    Nothing else of the client's request reaches the server. Raises DefinitionError if the definition is invalid.
    """
    specs: Any = tools
    if isinstance(specs, mistakes.Unusable):
        return specs  # type: ignore[return-value]  # noted: the worker does not start
    names = {spec.mcp_name or spec.name: spec.name for spec in tools}
    if APPROVAL_RESULT in names or len(names) < len(tools):
        raise DefinitionError(
            f"mcp_gateway {name}: each tool needs a name of its own, other than {APPROVAL_RESULT}"
        )
    if any(spec.secret_args or spec.secret_result for spec in tools):
        raise DefinitionError(f"mcp_gateway {name}: the client sees each argument and each result")
    offered: Any = Annotated[
        Literal[tuple(names)], WithJsonSchema({"type": "string", "enum": [*names]})
    ]
    spec = define(
        name=name,
        title=title,
        description=f"Makes calls of the MCP server {name} for people's MCP clients.",
        instructions="Make the call, and report what became of it.",
        input=create_model("GatewayCall", tool=(offered, ...), arguments=(dict[str, Any], {})),
        output=GatewayResult,
        model=_make_script(names),
        tools=[_refuse_changes(spec) for spec in tools],
    )
    return replace(spec, is_code=True) if isinstance(spec, AgentSpec) else spec


def _make_script(names: Mapping[str, str]) -> Script:
    """Make the call of the input, whose tool has the name of its server, and answer with its result."""

    def work(turn: Turn) -> Reply:
        if not turn.results:
            return call(names[turn.input["tool"]], **turn.input["arguments"])
        result = turn.results[-1]
        if not result.ok:
            reason = str(result.content) if result.denied else result.why
            return answer(GatewayResult(error=clean_text(reason)))
        content = result.content
        is_cut = measure_size(content) > MAX_GATEWAY_RESULT
        if is_cut:
            text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
            content = cut_text(text, MAX_GATEWAY_RESULT)
        return answer(GatewayResult(result=content, edited=result.edited, cut=is_cut))

    work.__qualname__ = mcp_gateway.__name__
    return script(work)


def _refuse_changes(spec: ToolSpec) -> ToolSpec:
    """Return the tool with a changed definition as an error for the client, which does not wait for its operator."""

    async def call_unchanged(context: ToolContext, /, **arguments: Any) -> Any:
        try:
            return await spec.function(context, **arguments)
        except DefinitionChanged as exc:
            raise ToolError(str(exc)) from exc

    return replace(spec, function=call_unchanged)
