"""Signoff as an MCP server: a real client of the protocol, and the requests that are refused."""

import asyncio
import json
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from django.test import Client, override_settings
from mcp import Client as McpClient
from mcp.client.streamable_http import streamable_http_client

from approvals.models import Approval
from approvals.people import tokens
from approvals.rights.principals import ALL_SCOPES, Scope
from config.mcp import DECIDE, TOOLS
from runtime.models import Run
from tests.support.office import NEWCOMER, Office, reseal
from tests.support.seeds import Cast

MCP = "/api/mcp/"


def _use(url: str, person: Any, *calls: tuple[str, dict[str, Any]]) -> list[Any]:
    """Call tools as a person's assistant does; the names of all tools come first."""
    _, secret = tokens.create(person, ALL_SCOPES)

    async def use() -> list[Any]:
        headers = {"Authorization": f"Bearer {secret}"}
        async with (
            httpx2.AsyncClient(headers=headers, trust_env=False) as http,
            McpClient(streamable_http_client(url, http_client=http)) as client,
        ):
            results: list[Any] = [{tool.name for tool in (await client.list_tools()).tools}]
            return results + [await client.call_tool(name, args) for name, args in calls]

    return asyncio.run(use())


def _ask(client: Client, method: str, /, **params: Any) -> Any:
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return client.post(MCP, json.dumps(message), content_type="application/json")


def _client(person: Any, *, without: str = "") -> Client:
    _, secret = tokens.create(person, ALL_SCOPES - {without})
    return Client(headers={"authorization": f"Bearer {secret}"})


def test_a_client_of_the_protocol_reads_requests_and_starts_a_run(
    live_server: Any, office: Office, cast: Cast, published: None
) -> None:
    run = office.start()
    request = office.request(run)
    url = f"{live_server.url}{MCP}"
    names, waiting, read, refused = _use(
        url,
        cast.bea,
        ("list_waiting_requests", {"limit": 5}),
        ("read_request", {"id": str(request.id)}),
        ("start_run", {"agent": "hr_onboarding", "input": NEWCOMER}),
    )
    assert names == set(TOOLS) - {DECIDE}
    assert [item["id"] for item in waiting.structured_content["items"]] == [str(request.id)]
    assert read.structured_content["digest"] == request.approval_digest
    assert refused.is_error
    assert json.loads(refused.content[0].text)["code"] == "not_eligible"
    _, started = _use(url, cast.ada, ("start_run", {"agent": "hr_onboarding", "input": NEWCOMER}))
    assert Run.objects.get(id=started.structured_content["id"]).requester == "ada"


def test_each_tool_answers_as_the_api_does(office: Office, cast: Cast, published: None) -> None:
    run = office.start()
    stranger = _ask(_client(cast.cyril), "tools/call", name="read_run", arguments={"id": str(run)})
    assert stranger.json()["result"]["isError"]
    mine = _ask(_client(cast.ada), "tools/call", name="read_run", arguments={"id": str(run)})
    assert mine.json()["result"]["structuredContent"]["id"] == str(run)
    for name, scope in (
        ("list_runs", Scope.RUNS_READ),
        ("list_waiting_requests", "approvals:read"),
    ):
        narrow = _client(cast.ada, without=scope)
        assert _ask(narrow, "tools/call", name=name).json()["result"]["isError"]
        assert not _ask(_client(cast.ada), "tools/call", name=name).json()["result"]["isError"]
    assert not _ask(_client(cast.ada), "tools/call", name="list_agents").json()["result"]["isError"]


@pytest.mark.django_db
def test_no_tool_decides_unless_the_setting_allows_it(cast: Cast) -> None:
    writes = {name: tool.path for name, tool in TOOLS.items() if tool.method != "GET"}
    assert writes == {"start_run": "/api/v1/runs", DECIDE: "/api/v1/approvals/{id}/decision"}
    listed = _ask(_client(cast.bea), "tools/list").json()["result"]["tools"]
    assert DECIDE not in {tool["name"] for tool in listed}
    arguments = {"id": "x", "digest": "x", "verdict": "approve"}
    answer = _ask(_client(cast.bea), "tools/call", name=DECIDE, arguments=arguments)
    assert answer.json()["error"]["message"] == "there is no such tool"


@override_settings(SIGNOFF_MCP_DECISIONS=True)
def test_a_reviewer_decides_what_they_read_at_low_risk_and_no_one_else(
    office: Office, cast: Cast
) -> None:
    request = office.request(office.start())
    seen = {"id": str(request.id), "digest": request.approval_digest, "verdict": "approve"}

    def decide(client: Client, **changed: Any) -> str:
        answer = _ask(client, "tools/call", name=DECIDE, arguments={**seen, **changed}).json()
        text = (answer.get("error") or {}).get("message") or answer["result"]["content"][0]["text"]
        return str(text)

    bea = _client(cast.bea)
    assert decide(bea) == "only calls at low risk are decided here"
    reseal([request], risk="low")
    seen["digest"] = request.approval_digest
    assert "the digest" in decide(bea, digest="sha256:0")
    assert "approve or deny" in decide(bea, verdict="edit")
    assert decide(bea, id=str(uuid4())) != ""
    assert '"code": "requester"' in decide(_client(cast.ada))
    assert '"code": "scope"' in decide(_client(cast.bea, without=Scope.APPROVALS_DECIDE))
    assert Approval.objects.get(id=request.id).status == "pending"
    assert '"status": "approved"' in decide(bea)
    assert Approval.objects.get(id=request.id).decided_by == "bea"


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("decide", {}),
        ("read_request", {"id": "../runs"}),
        ("read_request", {"id": "0192f1c2-0000-7000-8000-000000000001/decision"}),
        ("read_request", {}),
        ("list_waiting_requests", {"status": "denied"}),
        ("list_runs", []),
    ],
)
def test_wrong_calls_are_errors_of_the_protocol(cast: Cast, name: str, arguments: Any) -> None:
    answer = _ask(_client(cast.bea), "tools/call", name=name, arguments=arguments)
    assert answer.json()["error"]["code"] == -32602


@pytest.mark.django_db
def test_only_a_token_counts_and_another_site_is_refused(cast: Cast) -> None:
    session = Client()
    session.force_login(cast.ada)
    assert _ask(session, "tools/list").status_code == 401
    wrong = Client(headers={"authorization": "Bearer sgn_0000"})
    assert _ask(wrong, "tools/list").status_code == 401
    bea = _client(cast.bea)
    assert bea.get(MCP).status_code == 405
    for origin in ("https://evil.example", "null", "http://["):
        page = bea.post(MCP, "{}", content_type="text/plain", headers={"origin": origin})
        assert page.status_code == 403
    for body, code in (("{", -32700), ("[]", -32600), ('{"id": {}}', -32600)):
        answer = bea.post(MCP, body, content_type="application/json")
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, code)
    for name in ("list_runs", "list_waiting_requests"):
        result = _ask(bea, "tools/call", name=name, arguments={"cursor": "\ud800"}).json()["result"]
        assert json.loads(result["content"][0]["text"])["field"] == "cursor"
    note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert bea.post(MCP, json.dumps(note), content_type="application/json").status_code == 202
    assert _ask(bea, "resources/list").json()["error"]["code"] == -32601
    version = _ask(bea, "initialize", protocolVersion="1").json()["result"]["protocolVersion"]
    assert version == "2025-11-25"
