"""The page of people, for admins: a list with filter, and one URL for each action.

The page of one person's activity, for admins: decisions, runs, and changes of their rights.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC
from functools import partial
from typing import Any
from urllib.parse import urlencode

from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.html import format_html

from approvals.errors import LastAdmin, NotConfirmable, PolicyBroken
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
from runtime.web.forms import Choices, PageForm, TypedField, take_form
from runtime.web.requests import admins, read_actor, read_number, redirect_with

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


def show(
    request: HttpRequest,
    refused: PageForm | None = None,
    person: str = "",
    refusal: RequestError | None = None,
) -> HttpResponse:
    """List all people, or those who match `q`; the card of `person` or of the person `open` is unfolded.

    `refused` is shown in place of the form as it is at first, on the card of `person` if given.
    """
    search = request.GET.get("q", "").replace("\x00", "")
    unfolded = person or request.GET.get("open", "").replace("\x00", "")
    refusal = refused.refusal if refused else refusal
    status, wrong_search = refusal.status if refusal else 200, None
    try:
        page = account_list.read_people_page(
            search, selected=unfolded or None, reader=_name_admin(request)
        )
    except InvalidInput as exc:
        page = account_list.PeoplePage(people=(), more_matches=0)
        wrong_search, status = exc, exc.status
    deciders: Deciders | None = None
    with suppress(PolicyBroken):  # the page of the policy says so
        deciders = Deciders(policies.read_current())
    words = account_list.group_words()
    choices = [(group, format_html("<b>{}</b> {}", group, text)) for group, text in words.items()]
    add_form = PersonForm(ids="new-").choose_shown_form(refused)
    add_form.offer("group", choices)
    context: dict[str, Any] = {
        "section": "people",
        "cards": [
            _build_card(card, choices, refused if card.username == person else None)
            for card in page.people
        ],
        "unmet": deciders.find_problems() if deciders else {},
        "needed": deciders.needed() if deciders else {},
        "problem": refusal if refusal and not refusal.field else None,
        "more": page.more_matches,
        "wrong_search": wrong_search,
        "terms": [*(f"group:{name}" for name in words), *account_list.STATES],
        "operators": account_list.FILTERS,
        "search": search,
        "all_away": absences.list_away(),
        "unfolded": unfolded,
        "add_form": add_form,
        "group_form": NewGroupForm(ids="new-").choose_shown_form(refused),
        "me": request.user.get_username(),
    }
    return render(request, "accounts/people.html", context, status=status)


people = admins.guard_page(show)
_takes = partial(take_form, show=show, refusals=(InvalidInput, LastAdmin))


@admins.action
@_takes(PersonForm, ids="new-")
def add_person(request: HttpRequest, form: PersonForm) -> HttpResponse:
    """Create a person, who chooses a password with the link that the answer shows."""
    values, actor = form.read(), _name_admin(request)
    accounts.create_person(password=None, groups=values.pop("group"), actor=actor, **values)
    return _link_page(request, password_links.create(values["username"], actor=actor))


@admins.action
def make_link(request: HttpRequest, person: str) -> HttpResponse:
    """Make a link with which the person chooses a password. This answer is the only page that ever shows it."""
    try:
        link = password_links.create(person, actor=_name_admin(request))
    except LastAdmin as refusal:
        return show(request, person=person, refusal=refusal)
    return _link_page(request, link)


@admins.action
@_takes(ProfileForm, ids="{person}-")
def save_profile(request: HttpRequest, form: ProfileForm, person: str) -> HttpResponse:
    """Save a person's name and mail address."""
    accounts.save_profile(person, actor=_name_admin(request), **form.read())
    return _redirect_to_card(request, person, f"The name and the e-mail of {person} are saved.")


@admins.action
@_takes(NewGroupForm, ids="new-")
def add_group(request: HttpRequest, form: NewGroupForm) -> HttpResponse:
    """Create a group that rules of the policy can name."""
    name = form.read()["group"].strip()
    accounts.create_group(name, actor=_name_admin(request))
    message = f"The group {name} is created. It has no members yet."
    return redirect_with(request, message, "people")


@admins.action
@_takes(GroupsForm, ids="{person}-")
def set_groups(request: HttpRequest, form: GroupsForm, person: str) -> HttpResponse:
    """Set a person's groups."""
    accounts.set_groups(person, form.read()["group"], actor=_name_admin(request))
    return _redirect_to_card(request, person, f"The groups of {person} are saved.")


# The acts on a person without a form: their address, the function, and what the page says then.
ACTS: Mapping[str, tuple[str, Callable[..., None], str]] = {
    "disable": ("disable", accounts.disable, "{} is disabled: no session, no token, no login."),
    "enable": ("enable", accounts.enable, "{} can log in again. Revoked tokens stay revoked."),
    "reset_factors": ("second/reset", second_factors.reset, "{} has no second factor now."),
}


@admins.action
def change(request: HttpRequest, person: str, act: str) -> HttpResponse:
    """Do an act of the table on a person."""
    _, function, message = ACTS[act]
    try:
        function(person, actor=_name_admin(request))
    except (LastAdmin, Forbidden) as refusal:
        return show(request, person=person, refusal=refusal)
    return _redirect_to_card(request, person, message.format(person))


@admins.action
def confirm(request: HttpRequest, person: str, right: str) -> HttpResponse:
    """Confirm a right. The form names the assignment that was shown, so that a later one is not confirmed unread."""
    seq = read_number(request.POST.get("seq", "")) or 0
    try:
        accounts.confirm(person, right, seq=seq, actor=_name_admin(request))
    except NotConfirmable as refusal:
        return show(request, person=person, refusal=refusal)
    return _redirect_to_card(request, person, f"{right} of {person} is confirmed.")


@admins.action
def revoke_token(request: HttpRequest, person: str, token: str) -> HttpResponse:
    """Revoke a token of a person."""
    tokens.revoke(token, owner=person, actor=_name_admin(request))
    return _redirect_to_card(request, person, f"Token {token} of {person} is revoked.")


def _build_card(
    person: account_list.Person, choices: Choices, refused: PageForm | None
) -> tuple[account_list.Person, PageForm, PageForm]:
    """Return a person with the forms of their card: name and mail address, and groups."""
    names, ids = {"full_name": person.full_name, "email": person.email}, f"{person.username}-"
    groups = GroupsForm(initial={"group": person.groups}, ids=ids).choose_shown_form(refused)
    groups.offer("group", choices)
    return person, ProfileForm(initial=names, ids=ids).choose_shown_form(refused), groups


def _link_page(request: HttpRequest, link: password_links.NewLink) -> HttpResponse:
    """Show a new link, and mail it if the person has an address."""
    person = account_list.read_person(link.person)
    context = {
        "section": "people",
        "person": person,
        "link": link,
        "plain": password_links.build_address(link),
        "mailed": bool(person.email) and password_links.send(link, person.email),
    }
    return render(request, "accounts/link.html", context)


def _redirect_to_card(request: HttpRequest, person: str, message: str) -> HttpResponse:
    address = f"{reverse('people')}?{urlencode({'open': person})}#{person}"
    return redirect_with(request, message, address)


def _name_admin(request: HttpRequest) -> str:
    return request.user.get_username()


@admins.guard_page
def show_activity(request: HttpRequest, person: str) -> HttpResponse:
    """Show what a person did last, and who changed their rights."""
    profile, actor = account_list.read_person(person), read_actor(request)
    criteria = filters.read_criteria({"person": person}, UTC)
    readable = wiring.resolve_access().select_readable_runs(actor)
    context = {
        "section": "people",
        "person": profile,
        "decisions": history.read_page(
            principals.find_principal(actor), criteria, limit=SHOWN
        ).items,
        "runs": run_rows.read_runs_page(readable & Q(requester=person), limit=SHOWN).items,
        "changes": account_list.list_right_changes(person),
        "runs_query": urlencode({"q": f"by:{person}"}),
    }
    return render(request, "accounts/activity.html", context)
