"""Requesting changes on the page: the form, the exact text, the decision, the links, and the last revision."""

from datetime import UTC

import pytest
from django.test import Client

from approvals.models import Approval
from approvals.reads import filters, history
from approvals.requests import snapshot, verification
from approvals.rights import principals
from runtime.core.run.continuation import MAX_REVISIONS
from runtime.core.values.verdicts import CHANGES
from runtime.errors import InvalidInput
from runtime.ports.access import Actor
from tests.support import seeds
from tests.support.fake_ports import ask, say, turns
from tests.support.office import Office, reseal
from tests.support.pages import has, send, shows, text_of


@pytest.fixture
def revising(office: Office) -> Office:
    """The agent proposes its second call twice, with another level the second time."""
    levels = [("set_privileges", {"username": "newhire", "security_level": n}) for n in (3, 1)]
    office.effects.agents["account_agent"] = turns(ask(levels[0]), ask(levels[1]), say("Done."))
    return office


def test_changes_are_requested_and_both_requests_are_linked(
    bea: Client, ada: Client, revising: Office
) -> None:
    first = revising.request(revising.start())
    shows(bea, first, "Request changes", f'The agent will receive: <q class="raw">{CHANGES}')
    assert text_of(send(bea, first, "changes", reason="Level <b>1</b>."), 302) == ""
    first.refresh_from_db()
    assert (first.status, verification.fault(first)) == ("denied", None)
    page = shows(bea, first, "Changes requested by <bdi>bea</bdi>", "Level &lt;b&gt;1&lt;/b&gt;.")
    has(page, "is asked to propose it again", hides=["Denied"])
    revising.advance(first.run_id)
    second = Approval.objects.get(run=first.run_id, status="pending")
    assert (second.revises, second.revision) == (first.gate, 2)
    has(shows(bea, first), f'href="/a/{second.id}/"', "revision 2")
    page = shows(bea, second, f'href="/a/{first.id}/"', "Level &lt;b&gt;1&lt;/b&gt;.", "Revision 2")
    has(page, "The agent changed 1 argument:", "before: ", "now: ")
    shows(bea, "/decisions/", "Changes requested")
    shows(ada, first.run_id, "changes requested by <bdi>bea</bdi>")
    chosen = [
        filters.read_criteria({"verdict": verdict}, UTC)
        for verdict in ("changes_requested", "denied")
    ]
    principal = principals.principal_of(Actor(person="bea"))
    found = [[one.verdict for one in history.page(principal, one).items] for one in chosen]
    assert found == [["changes_requested"], []]
    second.revises = None
    assert snapshot.approval_digest(second) != second.approval_digest


def test_a_request_without_text_names_the_field_and_keeps_the_page(
    bea: Client, asked: Approval
) -> None:
    page = text_of(send(bea, asked, "changes", reason=" "), 422)
    has(page, "is required to request changes", 'data-writing="changes"', 'id="reason-problem"')
    stale = text_of(send(bea, asked, "changes", reason="my own words", digest="sha256:x"), 409)
    has(stale, "my own words", "the request changed while you were reading")
    assert seeds.untouched(asked)


def test_the_last_revision_is_approved_or_denied(bea: Client, office: Office) -> None:
    approval = office.request(office.start())
    reseal([approval], revises=approval.id, revision=MAX_REVISIONS)
    shows(bea, approval, "the last one: approve or deny it", hides=["Request changes"])
    with pytest.raises(InvalidInput, match="is its last one"):
        seeds.decide(approval, Actor(person="bea"), "request_changes", "Less.")
    assert seeds.untouched(approval)
    send(bea, approval, "deny", reason="no")
    approval.refresh_from_db()
    assert approval.status == "denied"
