"""The card that compares a request with the last similar approval."""

import re
from uuid import UUID

import pytest
from django.test import Client

from approvals.models import Request
from approvals.policy import Group
from tests.support.cast import Cast
from tests.support.office import Office


def _card(client: Client, request: Request) -> str:
    page = client.get(f"/a/{request.id}/").content.decode()
    found = re.search(r'aria-labelledby="similar".*?</section>', page, re.DOTALL)
    assert found
    return found[0]


def test_the_first_of_its_kind_says_so(bea: Client, office: Office, suspended: UUID) -> None:
    assert "First request like this" in _card(bea, office.request(suspended))


def test_the_card_shows_the_changes_and_the_last_approver(
    bea: Client, office: Office, suspended: UUID
) -> None:
    office.approve(suspended)
    card = _card(
        bea, office.request(office.start(args={"username": "newhire", "security_level": 5}))
    )
    assert "<bdi>bea</bdi> approved" in card
    assert "<bdi>security_level</bdi>" in card
    assert "<del>3</del>" in card
    assert "<ins>5</ins>" in card
    assert "1 unchanged" in card


def test_a_space_at_an_end_is_said_where_it_is_the_difference(
    bea: Client, office: Office, suspended: UUID
) -> None:
    office.approve(suspended)
    request = office.request(office.start(args={"username": "newhire ", "security_level": 3}))
    assert "It ends with 1 space, before with no spaces." in _card(bea, request)
    assert "U+0020" not in bea.get(f"/a/{request.id}/").content.decode()


def test_equal_arguments_are_said_to_be_equal(bea: Client, office: Office, suspended: UUID) -> None:
    office.approve(suspended)
    assert "every argument is the same" in _card(bea, office.request(office.start()))


def test_only_earlier_approvals_are_compared(bea: Client, office: Office, suspended: UUID) -> None:
    denied = office.request(suspended)
    bea.post(f"/a/{denied.id}/deny/", {"digest": denied.request_digest, "reason": "not yet"})
    office.advance(suspended)
    first = office.request(office.start())
    assert "First request like this" in _card(bea, first)
    office.approve(first.run_id)
    later = office.start(args={"username": "newhire", "security_level": 5})
    office.approve(later)
    assert "First request like this" in _card(bea, first)  # nothing had been approved before it
    assert "<ins>5</ins>" in _card(bea, office.request(later))


def test_other_agents_on_the_way_make_it_another_action(
    bea: Client, office: Office, suspended: UUID
) -> None:
    office.approve(suspended)
    Request.objects.filter(run=suspended).update(path=["another_agent", "set_privileges"])
    assert "First request like this" in _card(bea, office.request(office.start()))


@pytest.mark.parametrize("may_read", [True, False])
def test_similar_requests_respect_the_right_to_read(
    office: Office, suspended: UUID, ada: Client, cast: Cast, may_read: bool
) -> None:
    """Ada, no longer a reviewer, reads her own request, and Bea's approvals in her own runs only."""
    if not may_read:
        cast.ada.groups.remove(cast.ada.groups.get(name=Group.REVIEWERS))
        suspended = office.start(requester="another")
    office.approve(suspended)
    card = _card(ada, office.request(office.start(args={"username": "x", "security_level": 1})))
    assert ("<del>newhire</del>" in card) is may_read
    assert ("First request like this" in card) is not may_read


def test_the_agents_reasons_are_marked_as_its_own_words(
    bea: Client, office: Office, suspended: UUID
) -> None:
    page = bea.get(f"/a/{office.request(suspended).id}/").content.decode()
    order = [page.index(f'id="{name}"') for name in ("what", "similar", "why", "around")]
    assert order == sorted(order)
    why = page[order[2] : order[3]]
    assert "written by the agent" in why
