"""A reviewer sees what a call would change, how much of what, and what differs from the approved preview."""

from typing import Any

import pytest
from django.test import Client

from approvals.models import Request
from tests.support import seeds
from tests.support.pages import has, shows, text
from tests.support.seeds import Cast

SHOWN = {
    "summary": "Replaces one role",
    "changes": [{"what": "roles", "before": ["level-1"], "after": ["level-3"]}],
    "counts": {"accounts": 1},
    "targets": ["new.hire"],
    "warnings": ["the account is <i>9"],
}
OTHER = {
    "summary": "Replaces one role",
    "changes": [{"what": "roles", "before": [], "after": ["level-3"]}],
    "counts": {"accounts": 2},
    "targets": ["new.hire", "another"],
}


def asked(**preview: Any) -> Request:
    return seeds.pending(preview=preview)


def test_the_card_has_every_part(bea: Client, cast: Cast) -> None:
    words = (">Consequences<", "Replaces one role", "accounts", "level-1", "level-3", "new.hire")
    page = shows(bea, asked(shown=SHOWN), *words, "the account is &lt;i&gt;9", hides=["<i>9"])
    has(page, hides=["Asked again", "not approved before", "No preview"])


def test_a_difference_from_the_approved_preview_is_marked(bea: Client, cast: Cast) -> None:
    page = shows(bea, asked(shown=OTHER, before=SHOWN), "Asked again", "approved: 1")
    card = page.partition('id="preview"')[2].partition("</section>")[0]
    assert card.count("not approved before") == 2  # a change and a person
    assert card.count("no longer") == 2  # a change and a warning
    shows(bea, asked(missing="too slow", before=SHOWN), "There is no preview now")


def test_the_page_says_why_there_is_no_preview(bea: Client, cast: Cast) -> None:
    shows(bea, asked(missing="it took longer than 2 s"), "No preview: it took longer than 2 s")
    said = "The risk condition of pay failed: KeyError: '<i>9'"
    shows(bea, asked(unjudged=said), "Counted as high risk", hides=["<i>9", ">Consequences<"])
    shows(bea, seeds.pending(), hides=[">Consequences<", "Counted as high risk"])


@pytest.mark.parametrize("stored", ["7", '"x"', '{"shown": 7, "before": [1]}', "no JSON"])
def test_a_changed_preview_is_found_and_breaks_no_page(
    bea: Client, cast: Cast, stored: str
) -> None:
    request = asked(shown=SHOWN)
    Request.objects.filter(id=request.id).update(preview=stored)
    has(text(bea, request), "Tampered with")
