"""The account page: a person's rights, password, tokens, sessions, deputy and preferences."""

from dataclasses import asdict

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import logout, update_session_auth_hash
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.html import format_html

from approvals.people import (
    absences,
    account_list,
    accounts,
    login,
    preferences,
    second_factors,
    sign_in,
    tokens,
)
from approvals.reads import deciders
from approvals.rights import principals
from approvals.rules import policy
from approvals.web.pages.people import ProfileForm
from approvals.web.pages.session import NewPasswordForm
from runtime.errors import InvalidInput
from runtime.web.display import plain_visible
from runtime.web.forms import PageForm, TypedField, take_form
from runtime.web.requests import read_actor, redirect_with, users


class OwnProfileForm(ProfileForm):
    """The reader's own name and mail address, which the browser may fill in."""

    full_name = TypedField(
        "Full name", optional=True, maximum=accounts.MAX_NAME, autocomplete="name"
    )
    email = TypedField(
        "E-mail", "email", optional=True, maximum=accounts.MAX_ADDRESS, autocomplete="email"
    )


class ChangePasswordForm(NewPasswordForm):
    """A new password in place of the current one."""

    current = TypedField(
        "Current password", "password", autocomplete="current-password", required=True
    )


class TokenForm(PageForm):
    """A new token of the API."""

    name = TypedField(
        "Name",
        help="Its purpose, such as the program that uses it.",
        maximum=tokens.MAX_NAME,
        required=True,
    )
    days = TypedField(
        "Days until it expires", "integer", help="Empty: it never expires.", initial="90"
    )
    scopes = TypedField("Scopes within your rights", "checks")

    def clean(self) -> None:
        """Require a name, which a command may leave out, and a scope."""
        if not self.cleaned_data["name"]:
            self.add_error("name", "is missing: say what the token is for")
        if not self.cleaned_data["scopes"]:
            self.add_error("scopes", "are missing: choose at least one")


class AbsenceForm(PageForm):
    """The first and the last day of an absence, and the deputy."""

    starts = TypedField("First day", "date", required=True)
    ends = TypedField("Last day", "date", required=True)
    deputy = TypedField("Deputy", "select", required=True)


class TimeForm(PageForm):
    """The time zone and the clock in which the reader reads times."""

    zone = TypedField("Time zone", "select")
    clock = TypedField("Clock", choices=[(hours, f"{hours} hours") for hours in preferences.CLOCKS])


def show(request: HttpRequest, refused: PageForm | None = None, status: int = 422) -> HttpResponse:
    """Show the account page; `refused` is shown in place of the form as it is at first."""
    me = request.user.get_username()
    person = account_list.read_person(me)
    user = accounts.read_person(me)
    absence, standing_in = absences.read_absences_of(me)
    names = {"full_name": person.full_name, "email": person.email}
    times = asdict(preferences.read_time_preference(me))
    token_form = TokenForm(ids="token-").choose_shown_form(refused)
    rights = principals.compute_scopes(frozenset(person.groups))
    token_form.offer(
        "scopes",
        [
            (scope, format_html("<code>{}</code> {}", scope, words))
            for scope, words in account_list.SCOPES.items()
            if scope in rights
        ],
    )
    absence_form = AbsenceForm(ids="away-").choose_shown_form(refused)
    principal = principals.find_principal(read_actor(request))
    decides = principal is not None and policy.list_decidable_risks(principal.groups)
    names_of_deciders = deciders.list_decider_names() if decides else ()
    deputies = [(name, plain_visible(name)) for name in names_of_deciders if name != me]
    absence_form.offer("deputy", [("", "Choose a person"), *deputies])
    time_form = TimeForm(initial=times, ids="time-").choose_shown_form(refused)
    browser_zone = f"that of the browser ({preferences.read_browser_zone(request)})"
    time_form.offer(
        "zone", [("", browser_zone), *((name, name) for name in preferences.list_zones())]
    )
    context = {
        "section": "account",
        "person": person,
        "rights": [
            (name, words) for name, words in account_list.GROUPS.items() if name in person.groups
        ],
        "now": timezone.now(),
        "providers": list(settings.SIGNOFF_OIDC.values()),
        "slack": settings.SIGNOFF_SLACK is not None,
        "connected": sign_in.list_issuers(me)
        if settings.SIGNOFF_OIDC or settings.SIGNOFF_SLACK
        else (),
        "factors": (factors := second_factors.list_factors(user)),
        "codes_left": second_factors.count_codes(user) if factors else 0,
        "locked_until": login.find_refusal_end(request),
        "away": absence,
        "standing_in": standing_in,
        "deputies": deputies,
        "most_days": absences.MAX_DAYS,
        "profile_form": OwnProfileForm(initial=names, ids="own-").choose_shown_form(refused),
        "password_form": ChangePasswordForm(ids="my-").choose_shown_form(refused),
        "token_form": token_form,
        "absence_form": absence_form,
        "time_form": time_form,
    }
    return render(request, "accounts/account.html", context, status=status if refused else 200)


account = users.guard_page(show)


@users.action
@take_form(ChangePasswordForm, show, ids="my-")
def change_password(request: HttpRequest, form: ChangePasswordForm) -> HttpResponse:
    """Change the password and end all other sessions. The current password is throttled like a login."""
    me, fields = request.user.get_username(), form.read()
    if login.reauthenticate(request, me, fields["current"]) is None:
        if login.find_refusal_end(request):
            return show(request, form, status=429)
        raise InvalidInput("current", "is not your password")
    session = request.session.session_key
    person = accounts.set_password(me, fields["password"], actor=me, keep=session)
    update_session_auth_hash(request, person)
    message = "Your password is changed. Your other sessions have ended."
    return redirect_with(request, message, "account")


@users.action
@take_form(TokenForm, show, ids="token-")
def add_own_token(request: HttpRequest, form: TokenForm) -> HttpResponse:
    """Create a token. This answer is the only page that ever shows it."""
    fields, me = form.read(), read_actor(request).person
    owner = User.objects.get(username=me)
    token, plain = tokens.create(
        owner, fields["scopes"], actor=me, name=fields["name"], days=fields["days"]
    )
    context = {"section": "account", "token": token, "plain": plain}
    return render(request, "accounts/token.html", context)


@users.action
def revoke_own_token(request: HttpRequest, token: str) -> HttpResponse:
    """Revoke a token of this person."""
    me = request.user.get_username()
    tokens.revoke(token, owner=me, actor=me)
    return redirect_with(request, f"Token {token} is revoked.", "account")


@users.action
@take_form(OwnProfileForm, show, ids="own-")
def save_own_profile(request: HttpRequest, form: OwnProfileForm) -> HttpResponse:
    """Save the name and the mail address of this person."""
    me = request.user.get_username()
    accounts.save_profile(me, actor=me, **form.read())
    return redirect_with(request, "Saved.", "account")


@users.action
@take_form(TimeForm, show, ids="time-")
def choose_time(request: HttpRequest, form: TimeForm) -> HttpResponse:
    """Save the time zone and the clock in which this person reads times."""
    preferences.remember(request, preferences.save_time(request.user.get_username(), **form.read()))
    return redirect_with(request, "Saved.", "account")


@users.action
def log_out_everywhere(request: HttpRequest) -> HttpResponse:
    """End all sessions of this person, this one too."""
    accounts.end_sessions(User.objects.get(username=request.user.get_username()))
    logout(request)
    return redirect("login")


@users.action
@take_form(AbsenceForm, show, ids="away-")
def set_absence(request: HttpRequest, form: AbsenceForm) -> HttpResponse:
    """Name a deputy for some days."""
    at, values = preferences.read_reader_zone(request), form.read()
    away = absences.announce(
        deputy=values["deputy"],
        starts=preferences.parse_day(values["starts"], "starts", at),
        ends=preferences.parse_day(values["ends"], "ends", at, after=1),
        actor=read_actor(request),
    )
    exception = (
        f" Not in runs that {away.deputy} starts: they cannot decide those for you."
        if away.starts_runs
        else ""
    )
    message = f"Saved: {away.deputy} decides in your place.{exception}"
    return redirect_with(request, message, "account")


@users.action
def end_absence(request: HttpRequest, person: str) -> HttpResponse:
    """End an absence at once: the reader's own, one in which they are the deputy, or any as an admin."""
    me = request.user.get_username()
    absence, standing_in = absences.read_absences_of(me)
    if absences.end_absence(person, actor=read_actor(request)):
        messages.success(request, f"The absence of {person} has ended.")
    theirs = {concerned.person for concerned in (absence, *standing_in) if concerned}
    return redirect("account" if person in {me, *theirs} else "people")
