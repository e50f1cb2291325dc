"""docs/how-to/approve-existing-agents.md: its configuration of an MCP client reaches the gateway."""

import json
from urllib.parse import urlsplit

from approvals.people import tokens
from approvals.rights.principals import Scope
from config.env.environment import ROOT
from tests.docs.pages import blocks
from tests.support.gateway_desk import Desk
from tests.support.seeds import Cast
from tests.web.mcp_gateway.conftest import SECONDS, Assistant, Assistants

PAGE = ROOT / "docs/how-to/approve-existing-agents.md"


def test_a_client_of_the_page_waits_for_its_approval(
    web: str, desk: Desk, assistants: Assistants, cast: Cast
) -> None:
    (block,) = blocks(PAGE, "json")
    server = json.loads(block.text)["mcpServers"]["tickets"]
    _, token = tokens.create(cast.ada, [Scope.RUNS_START])
    headers = {name: text.replace("TOKEN", token) for name, text in server["headers"].items()}
    assistants.url = web + urlsplit(server["url"]).path
    call = Assistant(assistants, headers).call()
    assert desk.decide(desk.ask_people()) == "completed"
    assert not call.result(SECONDS).is_error
