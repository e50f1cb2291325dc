"""The form of a denial: suggested reasons, and the exact text that the agent receives."""

import pytest
from django.test import Client

from approvals.models import Approval
from approvals.web.components.decision_form import REASONS
from runtime.core.values.verdicts import DENIED
from tests.support.office import Office
from tests.support.pages import queries_at_most, send, shows, text
from tests.support.seeds import TOOL, published


def test_the_page_has_the_words_that_the_agent_receives(bea: Client, asked: Approval) -> None:
    with queries_at_most(15):
        page = text(bea, asked)
    assert f"{DENIED}<span data-told>…</span>" in page
    for reason in REASONS:
        assert f'name="preset" value="{reason}" formnovalidate>{reason}</button>' in page


def test_a_tool_suggests_its_own_reasons(bea: Client, asked: Approval) -> None:
    published(
        "account_agent", input_schema={}, tools=[{**TOOL, "deny_reasons": ["Not <b>today</b>."]}]
    )
    suggested = 'value="Not &lt;b&gt;today&lt;/b&gt;."'
    shows(bea, asked, suggested, hides=REASONS)


@pytest.mark.parametrize(
    ("typed", "heard"), [("", REASONS[0]), ("It exists.", f"{REASONS[0]} It exists.")]
)
def test_without_scripts_a_suggested_reason_denies(
    bea: Client, office: Office, asked: Approval, typed: str, heard: str
) -> None:
    send(bea, asked, "deny", preset=REASONS[0], reason=typed)
    asked.refresh_from_db()
    assert (asked.status, asked.reason) == ("denied", heard)
