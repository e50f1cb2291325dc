"""docs/how-to/approve-existing-agents.md: its gateway, which its configuration of an MCP client reaches."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from approvals.people import tokens
from approvals.rights.principals import Scope
from config.env.environment import ROOT
from tests.agents.tools.test_mcp import accept
from tests.docs.pages import blocks
from tests.support.gateway_desk import Desk
from tests.support.mcp_server import Tickets
from tests.support.seeds import Cast
from tests.web.mcp_gateway.conftest import SECONDS, Assistant, Assistants

PAGE = ROOT / "docs/how-to/approve-existing-agents.md"


@pytest.fixture
def desk(
    by_hand: None, cast: Cast, upstream: Tickets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Desk]:
    """A worker with the gateway of the page."""
    upstream.describe("create", "Create a ticket")
    accepted = accept(upstream, tmp_path / "tickets.json")
    monkeypatch.setenv("TICKETS_TOKEN", "canary")
    upstream.token = "canary"
    (block,) = [block.text for block in blocks(PAGE, "python") if "mcp_gateway(" in block.text]
    text = block.replace('"https://tickets.example/mcp"', f'"{upstream.url}", private=True')
    names: dict[str, Any] = {}
    exec(text.replace('"/srv/tickets.json"', f'definitions="{accepted}"'), names)  # noqa: S102
    worker = Desk(names["gateway"])
    yield worker
    worker.close()


def test_a_client_of_the_page_waits_for_its_approval(
    web: str, desk: Desk, assistants: Assistants, cast: Cast
) -> None:
    (block,) = blocks(PAGE, "json")
    server = json.loads(block.text)["mcpServers"]["tickets"]
    _, token = tokens.create(cast.ada, [Scope.RUNS_START])
    headers = {name: text.replace("TOKEN", token) for name, text in server["headers"].items()}
    assistants.url = web + urlsplit(server["url"]).path
    call = Assistant(assistants, headers).call("create")
    assert desk.decide(desk.ask_people()) == "completed"
    assert not call.result(SECONDS).is_error
