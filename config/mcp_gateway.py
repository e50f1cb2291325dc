"""Serves the MCP gateways: /api/mcp/NAME/ has the tools of an upstream server, and each call is a run of its caller.

Nothing is called from here: a worker makes the call, with the credentials of the gateway. A call that waits for people
blocks until `config.longpoll` gives up; then its answer names a handle for `approval_result`. Tasks of the protocol's
version 2025-11-25 are not offered: the library `mcp`, with which clients are written, has left them out.
"""

import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt

from agents.catalogue.queries import OfferedTool, offered_tools
from agents.sdk.spec import APPROVAL_RESULT
from approvals.decisions import gateway_calls
from approvals.decisions.gateway_calls import GatewayCall
from config import longpoll
from config.mcp import INVALID_PARAMS, McpResult, MessageRefused, respond, text_result
from runtime.core.run.continuation import RunStatus
from runtime.core.values.enums import EFFECT_CLASSES
from runtime.core.values.errors import NotJson
from runtime.errors import RequestError
from runtime.ports import wiring
from runtime.ports.access import Actor

_INSTRUCTIONS = (
    "Calls may wait for a person's approval. If an answer has a handle, the call has not been made yet: ask"
    f" {APPROVAL_RESULT} for its result, or send the same call again."
)
_APPROVAL_RESULT = {
    "name": APPROVAL_RESULT,
    "description": "Return the result of an earlier call that waited for a person's approval, by its handle.",
    "inputSchema": {
        "type": "object",
        "properties": {"handle": {"type": "string", "format": "uuid"}},
        "required": ["handle"],
        "additionalProperties": False,
    },
    "annotations": {"readOnlyHint": True},
}


@csrf_exempt  # a session is no authentication here, only a token
def serve(request: HttpRequest, gateway: str) -> HttpResponse:
    """Answer one message to a gateway, or note that the client has received the result of a call."""

    def connect(actor: Actor) -> Gateway:
        wiring.access().require(actor, "runs:start")
        tools = offered_tools(gateway)
        if tools is None:
            raise Http404("There is no such gateway.")
        return Gateway(name=gateway, offered=tools, actor=actor)

    return respond(request, connect)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """The tools of one upstream server, for one caller."""

    name: str
    offered: tuple[OfferedTool, ...]
    actor: Actor
    instructions: str = _INSTRUCTIONS

    def tools(self, request: HttpRequest) -> list[dict[str, Any]]:
        """Describe the tools as their definitions were accepted."""
        accepted = [
            {
                "name": tool.name,
                "description": tool.description,
                "inputSchema": tool.schema,
                "annotations": {"readOnlyHint": not EFFECT_CLASSES[tool.effect].has_side_effects},
            }
            for tool in self.offered
        ]
        return [*accepted, _APPROVAL_RESULT]

    def call(self, request: HttpRequest, name: str, arguments: dict[str, Any]) -> McpResult:
        """Start the run of a call or find it, and answer with its result, or with its handle."""
        collected = request.headers.get(longpoll.COLLECTED_HEADER.decode())
        try:
            if collected is not None:
                gateway_calls.collect(gateway=self.name, run=_id(collected), actor=self.actor)
                return McpResult(result={})
            run = self._run_of(request, name, arguments)
            call = gateway_calls.read(gateway=self.name, run=run, actor=self.actor)
        except NotJson as exc:
            raise MessageRefused(INVALID_PARAMS, f"{exc.field}: {exc.detail}") from exc
        except RequestError as exc:
            raise MessageRefused(INVALID_PARAMS, exc.detail) from exc
        wait = "met" if call.ended else f"unmet; {settings.SIGNOFF_GATEWAY_SECONDS:.0f}s"
        headers = {
            longpoll.HEADER: wait,
            longpoll.PERSON_HEADER: self.actor.person,
            longpoll.RUN_HEADER: str(run),
        }
        return McpResult(
            result=_result_of(call), headers={key.decode(): text for key, text in headers.items()}
        )

    def _run_of(self, request: HttpRequest, name: str, arguments: dict[str, Any]) -> UUID:
        waiting = request.headers.get(longpoll.RUN_HEADER.decode())  # the same call once more
        if waiting is not None:
            return _id(waiting)
        if name == APPROVAL_RESULT:
            return _id(arguments.get("handle"))
        if name not in {tool.name for tool in self.offered}:
            raise MessageRefused(INVALID_PARAMS, "there is no such tool")
        return gateway_calls.ask(
            gateway=self.name, tool=name, arguments=arguments, actor=self.actor
        )


def _id(text: object) -> UUID:
    try:
        return UUID(str(text))
    except ValueError as exc:
        raise MessageRefused(INVALID_PARAMS, "the handle is not a UUID") from exc


def _result_of(call: GatewayCall) -> dict[str, Any]:
    if not call.ended:
        asks = call.status is RunStatus.SUSPENDED
        state = "It waits for a person's decision" if asks else "It is under way"
        notice = (
            f"This call has no result yet. {state}, at {settings.PUBLIC_URL}/runs/{call.run}/."
            f" Ask {APPROVAL_RESULT} with the handle {call.run}, or send the same call again."
        )
        handle = {"handle": str(call.run), "status": "waiting"}
        return {**text_result(notice), "structuredContent": handle}
    answer = call.answer
    if answer is None:
        reason = call.reason or "its result is no longer kept"
        return text_result(
            f"The call has no result: its run {call.status}. {reason}", is_error=True
        )
    if answer["error"] is not None:
        return text_result(answer["error"], is_error=True)
    content = answer["result"]
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    notes = []
    if answer["edited"] is not None:
        changed = json.dumps(answer["edited"], ensure_ascii=False)
        notes.append(f"A person changed the arguments of this call: {changed}")
    if answer["cut"]:
        notes.append("The result is too long. This is its beginning.")
    result = text_result(text, *notes)
    return {**result, "structuredContent": content} if isinstance(content, dict) else result
