"""A comment goes with every verdict: signed, shown on the page, in the run and in the API, and told to the tool."""

import json

import pytest
from django.test import Client

from approvals.models import Approval
from tests.support.api_client import Caller
from tests.support.office import Office
from tests.support.pages import send, shows, text

WORDS = "Her <lead> agreed."
SHOWN = "Her &lt;lead&gt; agreed."


@pytest.mark.parametrize(
    ("way", "form"), [("approve", {}), ("answer", {"result": "3"}), ("deny", {})]
)
def test_a_comment_is_kept_with_each_verdict(
    bea: Client,
    ada: Client,
    bea_api: Caller,
    office: Office,
    asked: Approval,
    way: str,
    form: dict[str, str],
) -> None:
    send(bea, asked, way, reason=WORDS, **form)
    asked.refresh_from_db()
    assert json.loads(str(asked.statement))["reason"] == WORDS
    office.advance(asked.run_id)
    shows(ada, asked, SHOWN)
    assert SHOWN in text(ada, f"/runs/{asked.run_id}/?tab=transcript")
    assert bea_api.get(f"/approvals/{asked.id}").json()["reason"] == WORDS


def test_the_tool_is_told_who_asked_and_who_approved(
    bea: Client, office: Office, asked: Approval
) -> None:
    send(bea, asked, "approve", reason=WORDS)
    office.advance(asked.run_id)
    told = {
        call.tool: (call.requester, call.approvers, call.comment) for call in office.effects.calls
    }
    assert told["set_privileges"] == ("ada", ("bea",), WORDS)
    assert told["create_account"] == told["send_welcome_mail"] == ("ada", (), None)
