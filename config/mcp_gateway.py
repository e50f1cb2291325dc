"""Serves the MCP gateways at /api/mcp/NAME/.

A gateway has the tools of an upstream server, and each call is a run of its caller. Nothing is called from here: a
worker makes the call, with the credentials of the gateway. A call that waits for people blocks until `config.longpoll`
gives up; then its answer names a handle for `approval_result`.

A client that asks for a task of protocol version 2025-11-25 gets it at once. The task is the run, so it outlives the
connection and this process: only the token that asked may read, wait for or cancel it.
"""

import json
from typing import Any
from uuid import UUID

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt

from agents.catalogue.queries import describe_offered_tools
from agents.sdk.spec import APPROVAL_RESULT
from approvals.decisions import gateway_calls
from config import longpoll
from config.mcp import (
    ID,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MessageRefused,
    Params,
    ProtocolServer,
    build_object_schema,
    build_text_result,
    read_call,
    respond,
)
from runtime.core.run.continuation import RunStatus
from runtime.core.values.errors import NotJson
from runtime.errors import RequestError
from runtime.ports import wiring
from runtime.ports.access import Actor

NOT_ENDED = -32001  # the code that SDKs of the protocol have for a request that took too long
POLL_MILLISECONDS = 5000  # people take longer, and `tasks/result` answers at once
_DAY_MILLISECONDS = 24 * 60 * 60 * 1000
_APPROVAL_RESULT = {
    "name": APPROVAL_RESULT,
    "description": "Return the result of an earlier call that waited for a person's approval, by its handle.",
    "inputSchema": build_object_schema(handle=ID),
    "annotations": {"readOnlyHint": True},
}


@csrf_exempt
def serve(request: HttpRequest, gateway: str) -> HttpResponse:
    """Answer one message to a gateway. It may note that the client has a result."""

    def connect(actor: Actor) -> Gateway:
        wiring.resolve_access().require(actor, "runs:start")
        tools = describe_offered_tools(gateway)
        if tools is None:
            raise Http404("There is no such gateway.")
        return Gateway(gateway, tools, actor)

    return respond(request, connect)


class Gateway(ProtocolServer):
    """The tools of one upstream server, for one caller."""

    instructions = (
        "Calls may wait for a person's approval. If an answer has a handle, the call has not been made yet: ask"
        f" {APPROVAL_RESULT} for its result, or send the same call again."
    )
    task_capability = {"cancel": {}, "requests": {"tools": {"call": {}}}}

    def __init__(self, name: str, offered: list[dict[str, Any]], actor: Actor) -> None:
        self.name, self.offered, self.actor = name, offered, actor

    def tools(self) -> list[dict[str, Any]]:
        """Describe the tools as their definitions were accepted."""
        return [*self.offered, _APPROVAL_RESULT]

    def answer(self, request: HttpRequest, method: object, params: Params) -> dict[str, Any]:
        """Answer a message, or note that the client has the result of one."""
        collected = request.headers.get(longpoll.COLLECTED_HEADER.decode())
        try:
            if collected is not None:
                gateway_calls.collect(gateway=self.name, run=_parse_id(collected), actor=self.actor)
                return {}
            match method:
                case "tasks/get":
                    return self._task(_parse_id(params.get("taskId")))
                case "tasks/result":
                    return self._wait(_parse_id(params.get("taskId")), is_task=True)
                case "tasks/cancel":
                    run = _parse_id(params.get("taskId"))
                    gateway_calls.cancel(gateway=self.name, run=run, actor=self.actor)
                    return self._task(run)
                case _:
                    return super().answer(request, method, params)
        except (NotJson, RequestError) as exc:
            raise MessageRefused(str(exc)) from exc

    def call(self, request: HttpRequest, params: Params) -> dict[str, Any]:
        """Start the run of a call or find it, and answer with its result, its handle or its task."""
        name, arguments = read_call(params)
        task = params.get("task")
        if not isinstance(task, dict | None):
            raise MessageRefused("the task of a call is an object")
        is_task = task is not None
        waiting = request.headers.get(longpoll.RUN_HEADER.decode())  # the same call once more
        if waiting is not None:
            return self._wait(_parse_id(waiting))
        if name == APPROVAL_RESULT and not is_task:
            return self._wait(_parse_id(arguments.get("handle")))
        if name not in {tool["name"] for tool in self.offered}:
            code = METHOD_NOT_FOUND if name == APPROVAL_RESULT else INVALID_PARAMS
            raise MessageRefused("there is no such tool, or it has no tasks", code)
        run = gateway_calls.ask(gateway=self.name, tool=name, arguments=arguments, actor=self.actor)
        return {"task": self._task(run)} if is_task else self._wait(run)

    def _wait(self, run: UUID, *, is_task: bool = False) -> dict[str, Any]:
        """Answer with the result; `config.longpoll` waits for it by the headers."""
        call = gateway_calls.read(gateway=self.name, run=run, actor=self.actor)
        wait = "met" if call.ended_at else f"unmet; {settings.SIGNOFF_GATEWAY_SECONDS:.0f}s"
        self.headers = {
            longpoll.HEADER.decode(): wait,
            longpoll.PERSON_HEADER.decode(): self.actor.person,
            longpoll.RUN_HEADER.decode(): str(run),
        }
        if is_task and not call.ended_at:  # an answer would be taken for the result
            raise MessageRefused("the task has not ended: ask again", NOT_ENDED)
        related = {"io.modelcontextprotocol/related-task": {"taskId": str(run)}}
        return {**_build_result(call), **({"_meta": related} if is_task else {})}

    def _task(self, run: UUID) -> dict[str, Any]:
        """Describe a call as a task. Its `ttl` is a least time, since rules of retention begin at the end of a run."""
        call = gateway_calls.read(gateway=self.name, run=run, actor=self.actor)
        rules = (*settings.SIGNOFF_RETENTION, *settings.SIGNOFF_ARCHIVE)
        days = [rule.days for rule in rules if rule.days and rule.agent in (None, self.name)]
        status, message = _describe_state(call)
        return {
            "taskId": str(run),
            "status": status,
            "statusMessage": message,
            "createdAt": call.created_at.isoformat(),
            "lastUpdatedAt": (call.cancelled_at or call.ended_at or call.idle_since).isoformat(),
            "ttl": min(days) * _DAY_MILLISECONDS if days else None,
            "pollInterval": POLL_MILLISECONDS,
        }


def _parse_id(text: object) -> UUID:
    try:
        return UUID(str(text))
    except ValueError as exc:
        raise MessageRefused("the handle is not a UUID") from exc


def _describe_state(call: Any) -> tuple[str, str]:
    """Return the status of a task and its text.

    It is never `input_required`: that asks the client for input, and the people who decide are not its client.
    `cancelled` stays, as the protocol demands, also if a call that had begun then ended otherwise. `failed` includes a
    denial, as results with `isError` do.
    """
    if call.cancelled_at:
        return "cancelled", "Nothing more starts. A call that had begun may end."
    if not call.ended_at:
        return "working", _describe_wait(call)
    answer = gateway_calls.find_answer(call)
    if answer is None or answer["error"] is not None:
        return "failed", "tasks/result has the reason."
    return "completed", ""


def _describe_wait(call: Any) -> str:
    asks = call.status == RunStatus.SUSPENDED
    state = "It waits for a person's decision" if asks else "It is under way"
    return f"This call has no result yet. {state}, at {settings.PUBLIC_URL}/runs/{call.id}/."


def _build_result(call: Any) -> dict[str, Any]:
    if not call.ended_at:
        notice = (
            f"{_describe_wait(call)} Ask {APPROVAL_RESULT} with the handle {call.id}, or send the same"
            " call again."
        )
        handle = {"handle": str(call.id), "status": "waiting"}
        return {**build_text_result(notice), "structuredContent": handle}
    answer = gateway_calls.find_answer(call)
    if answer is None:
        text = f"The call has no result: its run {call.status}. {call.reason or ''}"
        if gateway_calls.may_be_made(call):
            text += (
                f" It was made before, or may have been: see {settings.PUBLIC_URL}/runs/{call.id}/."
            )
        return build_text_result(text, is_error=True)
    if answer["error"] is not None:
        return build_text_result(answer["error"], is_error=True)
    content = answer["result"]
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    notes = []
    if answer["edited"] is not None:
        changed = json.dumps(answer["edited"], ensure_ascii=False)
        notes.append(f"A person changed the arguments of this call: {changed}")
    if answer["cut"]:
        notes.append("The result is too long. This is its beginning.")
    result = build_text_result(text, *notes)
    return {**result, "structuredContent": content} if isinstance(content, dict) else result
