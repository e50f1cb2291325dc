"""The page of people, for admins: a list with filter, and one URL for each action."""

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from approvals.errors import ApprovalError, LastAdmin, NotConfirmable
from approvals.people import absences, account_list, accounts, password_links, tokens
from approvals.people import accounts as actions
from runtime.errors import InvalidInput, RequestError
from runtime.web.requests import admins_only, form_text

SEQ = re.compile(r"[0-9]{1,9}")  # the number of an assignment in a form


@dataclass(frozen=True, slots=True, kw_only=True)
class FormProblem:
    """An error of a form: the person ("" for a new one), the form, and the field if the error names one."""

    person: str
    act: str
    field: str
    text: str

    @property
    def spot(self) -> str:
        """The name of the wrong field, unique on the page."""
        return f"{self.person}/{self.act}/{self.field}"


@require_safe
@admins_only
def people(request: HttpRequest) -> HttpResponse:
    """List all people, or those who match `q`; the card of the person `open` is unfolded."""
    return _page(request)


@require_POST
@never_cache
@admins_only
def add_person(request: HttpRequest) -> HttpResponse:
    """Create a person, who chooses a password with the link that the answer shows."""
    username = request.POST.get("username", "")
    try:
        actions.create_person(
            username=username,
            password=None,
            groups=_groups(request),
            actor=_admin(request),
            full_name=request.POST.get("full_name", ""),
            email=request.POST.get("email", ""),
        )
        link = password_links.create(username, actor=_admin(request))
    except (ApprovalError, InvalidInput) as refused:
        return _refuse(request, refused, person="", act="add")
    return _link_page(request, link)


@require_POST
@never_cache
@admins_only
def make_link(request: HttpRequest, person: str) -> HttpResponse:
    """Make a link with which the person chooses a password. This answer is the only page that ever shows it."""
    try:
        link = password_links.create(person, actor=_admin(request))
    except LastAdmin as refused:
        return _refuse(request, refused, person=person, act="link")
    return _link_page(request, link)


@require_POST
@admins_only
def save_profile(request: HttpRequest, person: str) -> HttpResponse:
    """Save a person's name and mail address."""
    try:
        accounts.save_profile(
            person,
            full_name=request.POST.get("full_name", ""),
            email=request.POST.get("email", ""),
            actor=_admin(request),
        )
    except InvalidInput as refused:
        return _refuse(request, refused, person=person, act="profile")
    return _done(request, person, f"The name and the e-mail of {person} are saved.")


@require_POST
@admins_only
def add_group(request: HttpRequest) -> HttpResponse:
    """Create a group that rules of the policy can name."""
    name = form_text(request.POST, "group").strip()
    try:
        actions.create_group(name, actor=_admin(request))
    except InvalidInput as refused:
        return _refuse(request, refused, person="", act="group")
    messages.success(request, f"The group {name} is created. It has no members yet.")
    return redirect("people")


@require_POST
@admins_only
def set_groups(request: HttpRequest, person: str) -> HttpResponse:
    """Set a person's groups."""
    try:
        actions.set_groups(person, _groups(request), actor=_admin(request))
    except (InvalidInput, LastAdmin) as refused:
        return _refuse(request, refused, person=person, act="groups")
    return _done(request, person, f"The groups of {person} are saved.")


@require_POST
@admins_only
def disable(request: HttpRequest, person: str) -> HttpResponse:
    """Disable a person."""
    try:
        actions.disable(person, actor=_admin(request))
    except LastAdmin as refused:
        return _refuse(request, refused, person=person, act="disable")
    return _done(request, person, f"{person} is disabled: no session, no token, no login.")


@require_POST
@admins_only
def enable(request: HttpRequest, person: str) -> HttpResponse:
    """Enable a person."""
    actions.enable(person, actor=_admin(request))
    return _done(request, person, f"{person} can log in again. Revoked tokens stay revoked.")


@require_POST
@admins_only
def confirm(request: HttpRequest, person: str, what: str) -> HttpResponse:
    """Confirm a right. The form names the assignment that was shown, so that a later one is not confirmed unread."""
    seen = request.POST.get("seq", "")
    try:
        seq = int(seen) if SEQ.fullmatch(seen) else 0
        actions.confirm(person, what, seq=seq, actor=_admin(request))
    except NotConfirmable as refused:
        return _refuse(request, refused, person=person, act="confirm")
    return _done(request, person, f"{what} of {person} is confirmed.")


@require_POST
@admins_only
def revoke_token(request: HttpRequest, person: str, token: str) -> HttpResponse:
    """Revoke a token of a person."""
    tokens.revoke(token, owner=person, actor=_admin(request))
    return _done(request, person, f"Token {token} of {person} is revoked.")


def _page(
    request: HttpRequest, problem: FormProblem | None = None, status: int = 200
) -> HttpResponse:
    search = request.GET.get("q", "").replace("\x00", "")
    unfolded = problem.person if problem else request.GET.get("open", "").replace("\x00", "")
    wrong_search = None
    try:
        found = account_list.people_page(search, shown=unfolded or None, reader=_admin(request))
    except InvalidInput as refused:
        found, wrong_search, status = (
            account_list.PeoplePage(people=(), more=0),
            refused,
            refused.status,
        )
    context: dict[str, Any] = {
        "section": "people",
        "listing": found,
        "wrong_search": wrong_search,
        "terms": [*(f"group:{name}" for name in account_list.group_words()), *account_list.STATES],
        "search": search,
        "all_away": absences.all_away(),
        "unfolded": unfolded,
        "problem": problem,
        "typed": request.POST,
        "chosen": request.POST.getlist("group"),
        "groups": account_list.group_words().items(),
        "max_username": actions.MAX_USERNAME,
        "me": request.user.get_username(),
    }
    return render(request, "accounts/people.html", context, status=status)


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


def _refuse(request: HttpRequest, refused: RequestError, *, person: str, act: str) -> HttpResponse:
    field = refused.field if isinstance(refused, InvalidInput) else ""
    text = f"The {field} {refused.detail.rstrip('.')}." if field else refused.detail
    problem = FormProblem(person=person, act=act, field=field, text=text)
    return _page(request, problem, refused.status)


def _done(request: HttpRequest, person: str, said: str) -> HttpResponse:
    messages.success(request, said)
    return redirect(f"{reverse('people')}?{urlencode({'open': person})}#{person}")


def _groups(request: HttpRequest) -> set[str]:
    given = set(request.POST.getlist("group"))
    if given - set(account_list.group_words()):
        raise InvalidInput("group", "must be one of those on the page.")
    return given


def _admin(request: HttpRequest) -> str:
    return request.user.get_username()
