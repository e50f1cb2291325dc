"""The page of people, for admins: a list with filter, and one URL for each action.

The page of one person's activity, for admins: decisions, runs, and changes of their rights.
"""

import re
from contextlib import suppress
from datetime import UTC
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.html import format_html

from approvals.errors import ApprovalError, LastAdmin, NotConfirmable, PolicyBroken
from approvals.governance import policies
from approvals.people import (
    absences,
    account_list,
    accounts,
    password_links,
    second_factors,
    tokens,
)
from approvals.reads import filters, history
from approvals.reads.policy_deciders import Deciders
from approvals.rights import principals
from runtime.errors import Forbidden, InvalidInput, RequestError
from runtime.ports import wiring
from runtime.reads import run_rows
from runtime.web.forms import Choices, PageForm, TypedField
from runtime.web.requests import actor_of, admins

SEQ = re.compile(r"[0-9]{1,9}")  # the number of an assignment in a form
SHOWN = 10  # decisions, and runs


_NAME: dict[str, Any] = {"autocapitalize": "none", "required": True}


class ProfileForm(PageForm):
    """A person's name and mail address."""

    full_name = TypedField("Full name", optional=True, maximum=accounts.MAX_NAME)
    email = TypedField("E-mail", "email", optional=True, maximum=accounts.MAX_ADDRESS)


class GroupsForm(PageForm):
    """A person's groups."""

    group = TypedField("Groups", "checks")


class PersonForm(GroupsForm, ProfileForm):
    """A new person with their groups."""

    username = TypedField(
        "Username",
        help="Letters a to z, digits and @ . + - _",
        maximum=accounts.MAX_USERNAME,
        **_NAME,
    )


class NewGroupForm(PageForm):
    """The name of a new group."""

    group = TypedField(
        "Name of the group",
        help="Rules of the policy can name it, such as finance. Members need the group reviewers too.",
        maximum=40,
        **_NAME,
    )


@admins.page
def people(request: HttpRequest) -> HttpResponse:
    """List all people, or those who match `q`; the card of the person `open` is unfolded."""
    return _page(request)


@admins.action
def add_person(request: HttpRequest) -> HttpResponse:
    """Create a person, who chooses a password with the link that the answer shows."""
    form = PersonForm(request.POST, ids="new-")
    try:
        values = form.read()
        accounts.create_person(
            username=values["username"],
            password=None,
            groups=values["group"],
            actor=_admin(request),
            full_name=values["full_name"],
            email=values["email"],
        )
        link = password_links.create(values["username"], actor=_admin(request))
    except (ApprovalError, InvalidInput) as refusal:
        return _page(request, refusal, form)
    return _link_page(request, link)


@admins.action
def make_link(request: HttpRequest, person: str) -> HttpResponse:
    """Make a link with which the person chooses a password. This answer is the only page that ever shows it."""
    try:
        link = password_links.create(person, actor=_admin(request))
    except LastAdmin as refusal:
        return _page(request, refusal, person=person)
    return _link_page(request, link)


@admins.action
def save_profile(request: HttpRequest, person: str) -> HttpResponse:
    """Save a person's name and mail address."""
    form = ProfileForm(request.POST, ids=f"{person}-")
    try:
        accounts.save_profile(person, actor=_admin(request), **form.read())
    except InvalidInput as refusal:
        return _page(request, refusal, form, person)
    return _redirect_to_card(request, person, f"The name and the e-mail of {person} are saved.")


@admins.action
def add_group(request: HttpRequest) -> HttpResponse:
    """Create a group that rules of the policy can name."""
    form = NewGroupForm(request.POST, ids="new-")
    name = form.read()["group"].strip()
    try:
        accounts.create_group(name, actor=_admin(request))
    except InvalidInput as refusal:
        return _page(request, refusal, form)
    messages.success(request, f"The group {name} is created. It has no members yet.")
    return redirect("people")


@admins.action
def set_groups(request: HttpRequest, person: str) -> HttpResponse:
    """Set a person's groups."""
    form = GroupsForm(request.POST, ids=f"{person}-")
    try:
        accounts.set_groups(person, form.read()["group"], actor=_admin(request))
    except (InvalidInput, LastAdmin) as refusal:
        return _page(request, refusal, form, person)
    return _redirect_to_card(request, person, f"The groups of {person} are saved.")


@admins.action
def reset_factors(request: HttpRequest, person: str) -> HttpResponse:
    """Remove the second factors of a person who lost them."""
    second_factors.reset(person, actor=_admin(request))
    return _redirect_to_card(request, person, f"{person} has no second factor now.")


@admins.action
def disable(request: HttpRequest, person: str) -> HttpResponse:
    """Disable a person."""
    try:
        accounts.disable(person, actor=_admin(request))
    except LastAdmin as refusal:
        return _page(request, refusal, person=person)
    return _redirect_to_card(
        request, person, f"{person} is disabled: no session, no token, no login."
    )


@admins.action
def enable(request: HttpRequest, person: str) -> HttpResponse:
    """Enable a person."""
    try:
        accounts.enable(person, actor=_admin(request))
    except Forbidden as refusal:
        return _page(request, refusal, person=person)
    return _redirect_to_card(
        request, person, f"{person} can log in again. Revoked tokens stay revoked."
    )


@admins.action
def confirm(request: HttpRequest, person: str, right: str) -> HttpResponse:
    """Confirm a right. The form names the assignment that was shown, so that a later one is not confirmed unread."""
    number = request.POST.get("seq", "")
    try:
        seq = int(number) if SEQ.fullmatch(number) else 0
        accounts.confirm(person, right, seq=seq, actor=_admin(request))
    except NotConfirmable as refusal:
        return _page(request, refusal, person=person)
    return _redirect_to_card(request, person, f"{right} of {person} is confirmed.")


@admins.action
def revoke_token(request: HttpRequest, person: str, token: str) -> HttpResponse:
    """Revoke a token of a person."""
    tokens.revoke(token, owner=person, actor=_admin(request))
    return _redirect_to_card(request, person, f"Token {token} of {person} is revoked.")


def _page(
    request: HttpRequest,
    refusal: RequestError | None = None,
    refused: PageForm | None = None,
    person: str = "",
) -> HttpResponse:
    """Show the page; `refused` is shown in place of the form as it is at first, on the card of `person` if given."""
    search = request.GET.get("q", "").replace("\x00", "")
    unfolded = person or request.GET.get("open", "").replace("\x00", "")
    status, wrong_search = refusal.status if refusal else 200, None
    if refused is not None and refusal is not None:
        refused.refuse(refusal)
    try:
        page = account_list.people_page(search, selected=unfolded or None, reader=_admin(request))
    except InvalidInput as exc:
        page = account_list.PeoplePage(people=(), more_matches=0)
        wrong_search, status = exc, exc.status
    deciders: Deciders | None = None
    with suppress(PolicyBroken):  # the page of the policy says so
        deciders = Deciders(policies.current())
    words = account_list.group_words()
    choices = [(group, format_html("<b>{}</b> {}", group, text)) for group, text in words.items()]
    add_form = PersonForm(ids="new-").replaced_by(refused)
    add_form.offer("group", choices)
    context: dict[str, Any] = {
        "section": "people",
        "cards": [
            _card(card, choices, refused if card.username == person else None)
            for card in page.people
        ],
        "unmet": deciders.problems() if deciders else {},
        "needed": deciders.needed() if deciders else {},
        "problem": refusal if refusal and not refusal.field else None,
        "more": page.more_matches,
        "wrong_search": wrong_search,
        "terms": [*(f"group:{name}" for name in words), *account_list.STATES],
        "operators": account_list.FILTERS,
        "search": search,
        "all_away": absences.all_away(),
        "unfolded": unfolded,
        "add_form": add_form,
        "group_form": NewGroupForm(ids="new-").replaced_by(refused),
        "me": request.user.get_username(),
    }
    return render(request, "accounts/people.html", context, status=status)


def _card(
    person: account_list.Person, choices: Choices, refused: PageForm | None
) -> tuple[account_list.Person, PageForm, PageForm]:
    """Return a person with the forms of their card: name and mail address, and groups."""
    names, ids = {"full_name": person.full_name, "email": person.email}, f"{person.username}-"
    groups = GroupsForm(initial={"group": person.groups}, ids=ids).replaced_by(refused)
    groups.offer("group", choices)
    return person, ProfileForm(initial=names, ids=ids).replaced_by(refused), groups


def _link_page(request: HttpRequest, link: password_links.NewLink) -> HttpResponse:
    """Show a new link, and mail it if the person has an address."""
    person = account_list.person(link.person)
    to = person.email if person is not None else ""
    context = {
        "section": "people",
        "person": person,
        "link": link,
        "address": password_links.address_of(link),
        "mailed": bool(to) and password_links.send(link, to),
    }
    return render(request, "accounts/link.html", context)


def _redirect_to_card(request: HttpRequest, person: str, message: str) -> HttpResponse:
    messages.success(request, message)
    return redirect(f"{reverse('people')}?{urlencode({'open': person})}#{person}")


def _admin(request: HttpRequest) -> str:
    return request.user.get_username()


@admins.page
def activity(request: HttpRequest, person: str) -> HttpResponse:
    """Show what a person did last, and who changed their rights."""
    profile = account_list.person(person) if "\x00" not in person else None
    if profile is None:
        raise Http404
    actor = actor_of(request)
    criteria = filters.read_criteria({"person": person}, UTC)
    readable = wiring.access().readable_runs(actor)
    context = {
        "section": "people",
        "person": profile,
        "decisions": history.page(principals.principal_of(actor), criteria, limit=SHOWN).items,
        "runs": run_rows.runs_page(readable & Q(requester=person), limit=SHOWN).items,
        "changes": account_list.right_changes(person),
        "runs_query": urlencode({"q": f"by:{person}"}),
    }
    return render(request, "accounts/activity.html", context)
