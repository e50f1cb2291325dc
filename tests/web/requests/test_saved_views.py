"""Saved views of the inbox: a person's own lists with their search, order and count."""

import re

import pytest
from django.test import Client

from approvals.models import SavedView
from approvals.people import preferences
from runtime.errors import InvalidInput
from tests.support import seeds
from tests.support.pages import has, in_order, queries_at_most, shows, text, text_of
from tests.support.seeds import Cast

ADD = "/inbox/views/add/"


def test_a_view_is_saved_opened_and_deleted_by_its_owner_alone(bea: Client, ada: Client) -> None:
    for risk in ("high", "high", "low"):
        seeds.pending(requester="cyril", risk=risk)
    shows(bea, "/inbox/", hides=["Save this view"])  # it is the whole list
    form = {"q": "risk:high", "sort": "age", "group": ""}
    page = shows(bea, "/inbox/?q=risk:high&sort=age", "Save this view")
    for name in ("q", "sort"):
        has(page, f'type="hidden" name="{name}" value="{form[name]}"')
    to = bea.post(ADD, {"name": " Urgent <b> ", **form})["Location"]
    assert to == "/inbox/?q=risk%3Ahigh&sort=age"
    named = (
        r'<a href="([^"]+)" aria-current="page"><bdi>Urgent &lt;b&gt;</bdi> <span class="num">2<'
    )
    (link,) = re.findall(named, text(bea, to))
    assert link.replace("&amp;", "&") == to.removeprefix("/inbox/")
    shows(ada, "/inbox/", hides=["Urgent"])
    view = SavedView.objects.get()
    ada.post(f"/inbox/views/{view.id}/delete/")
    has(text(bea, to), f'action="/inbox/views/{view.id}/delete/"')
    bea.post(f"/inbox/views/{view.id}/delete/")
    shows(bea, "/inbox/", hides=["Urgent"])


def test_a_refused_name_says_the_limit_and_comes_back(bea: Client, cast: Cast) -> None:
    form = {"q": "risk:high", "name": "x" * 41}
    page = text_of(bea.post(ADD, form, follow=True))
    has(page, "Not saved: the name must have 1 to 40 visible characters.", f'value="{"x" * 41}"')
    for name in ("", "  ", "a\u202eb"):
        with pytest.raises(InvalidInput, match="visible"):
            preferences.save_view("bea", name, {})
    for number in range(preferences.MAX_VIEWS):
        preferences.save_view("bea", f"{number}", {})
    preferences.save_view("bea", "0", {"q": "again"})  # a name is saved again in its place
    with pytest.raises(InvalidInput, match="you have 20 views already"):
        preferences.save_view("bea", "one more", {})
    preferences.save_view("ada", "her first", {})


def test_twenty_views_cost_as_many_queries_as_none(bea: Client, cast: Cast) -> None:
    seeds.pending(requester="cyril")
    for number in range(preferences.MAX_VIEWS):
        preferences.save_view("bea", f"view {number}", {"q": f"tool:{number}", "sort": "risk"})
    preferences.save_view("bea", "view 0", {"q": "colour:red"})  # an operator that there is no more
    with queries_at_most(8):
        page = text(bea, "/inbox/?q=privileges&sort=risk&group=kind")
    in_order(page, 'tool:set_privileges"', 'by:cyril"', "view 0")
    has(page, 'value="risk:high"', 'value="agent:hr_onboarding"')
