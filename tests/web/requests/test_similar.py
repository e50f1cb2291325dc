"""The card that compares a request with the last similar approval."""

import random
import re
from typing import Any

import pytest
from django.test import Client

from approvals.models import Request
from approvals.policy import Group
from tests.support.cast import Cast
from tests.support.office import Office
from tests.support.pages import has, send, shows, text

FIRST = "First request like this"


def _card(client: Client, request: Request) -> str:
    found = re.search(r'aria-labelledby="similar".*?</section>', text(client, request), re.DOTALL)
    assert found
    return found[0]


def _start(office: Office, **args: Any) -> Request:
    return office.request(office.start(args={"username": "newhire", "security_level": 3, **args}))


def test_the_card_shows_the_changes_and_the_last_approver(
    bea: Client, office: Office, asked: Request
) -> None:
    has(_card(bea, asked), FIRST)
    office.approve(asked.run_id)
    has(_card(bea, _start(office)), "every argument is the same")
    changes = ("<bdi>security_level</bdi>", "<del>3</del>", "<ins>5</ins>", "1 unchanged")
    has(_card(bea, _start(office, security_level=5)), "<bdi>bea</bdi> approved", *changes)
    spaced = _start(office, username="newhire ")
    has(_card(bea, spaced), "It ends with 1 space, before with no spaces.")
    shows(bea, spaced, hides=["U+0020"])
    odd = _start(office, note="p\u0430ypal")
    shown = text(bea, odd).partition('class="args"')[2].partition("</dl>")[0]
    for part in (shown, _card(bea, odd)):
        has(part, "mixes Latin and Cyrillic letters")


def test_a_hostile_pair_of_arguments_is_shown_whole(bea: Client, office: Office) -> None:
    chance = random.Random(1)
    notes = [" ".join(chance.choice("ab") for _ in range(2_000)) for _ in range(2)]
    office.approve(_start(office, note=notes[0]).run_id)
    whole = "Shown whole: comparing the words would take too long."
    has(_card(bea, _start(office, note=notes[1])), whole, f"<ins>{notes[1]}</ins>")


def test_only_earlier_approvals_of_the_same_way_are_compared(
    bea: Client, office: Office, asked: Request
) -> None:
    send(bea, asked, "deny", reason="not yet")
    office.advance(asked.run_id)
    first = _start(office)
    has(_card(bea, first), FIRST)
    office.approve(first.run_id)
    later = _start(office, security_level=5)
    office.approve(later.run_id)
    has(_card(bea, first), FIRST)  # nothing had been approved before it
    has(_card(bea, later), "<ins>5</ins>")
    ways = Request.objects.filter(pk__in=[first.pk, later.pk])
    ways.update(path=["another_agent", "set_privileges"])
    has(_card(bea, _start(office)), FIRST)


@pytest.mark.parametrize("may_read", [True, False])
def test_similar_requests_respect_the_right_to_read(
    office: Office, ada: Client, cast: Cast, may_read: bool
) -> None:
    """Ada, no longer a reviewer, reads her own request, and Bea's approvals in her own runs only."""
    if not may_read:
        cast.ada.groups.remove(cast.ada.groups.get(name=Group.REVIEWERS))
    office.approve(office.start(requester="ada" if may_read else "another"))
    card = _card(ada, _start(office, username="x"))
    assert ("<del>newhire</del>" in card) is may_read
    assert (FIRST in card) is not may_read
