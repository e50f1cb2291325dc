"""The account page: a person's rights, password, tokens and sessions."""

from django.contrib import messages
from django.contrib.auth import logout, update_session_auth_hash
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from approvals.people import account_list, accounts, login, preferences, tokens
from approvals.rights import scopes
from approvals.web import zone
from approvals.web.pages import absence
from runtime.errors import InvalidInput

# The choices of a token's end, and the days until then.
EXPIRIES: dict[str, int | None] = {
    **{str(days): days for days in (7, 30, 90, 365)},
    "never": None,
}
DEFAULT_EXPIRY = "90"


@require_safe
@login_required
def account(request: HttpRequest) -> HttpResponse:
    """Show the account page."""
    return _page(request)


@require_POST
@login_required
def change_password(request: HttpRequest) -> HttpResponse:
    """Change the password and end all other sessions. The current password is throttled like a login."""
    me = request.user.get_username()
    known = login.reauthenticate(request, me, request.POST.get("current", ""))
    if known is None:
        status = 429 if login.refused_until(request) else 422
        problem = InvalidInput("current", "That is not your password.")
        return _page(request, problem, status)
    try:
        if request.POST.get("password", "") != request.POST.get("again", ""):
            raise InvalidInput("password", "was not typed the same way twice.")
        changed = accounts.set_password(
            me, request.POST.get("password", ""), actor=me, keep=request.session.session_key
        )
    except InvalidInput as refused:
        problem = InvalidInput(refused.field, f"The new {refused.field} {refused.detail}")
        return _page(request, problem, refused.status)
    update_session_auth_hash(request, changed)
    messages.success(request, "Your password is changed. Your other sessions have ended.")
    return redirect("account")


@require_POST
@never_cache
@login_required
def add_own_token(request: HttpRequest) -> HttpResponse:
    """Create a token. This answer is the only page that ever shows it."""
    owner = User.objects.get(username=request.user.get_username())
    chosen, name = request.POST.getlist("scope"), request.POST.get("name", "").strip()
    try:
        if not name:
            raise InvalidInput("name", "is missing: say what the token is for.")
        if not chosen:
            raise InvalidInput("scope", "is missing: choose at least one.")
        days = EXPIRIES.get(request.POST.get("expires", DEFAULT_EXPIRY), 0)
        token, plain = tokens.create(
            owner, chosen, actor=owner.get_username(), name=name, days=days
        )
    except InvalidInput as refused:
        problem = InvalidInput(f"token_{refused.field}", f"The {refused.field} {refused.detail}")
        return _page(request, problem, refused.status)
    context = {"section": "account", "token": token, "plain": plain}
    return render(request, "accounts/token.html", context)


@require_POST
@login_required
def revoke_own_token(request: HttpRequest, token: str) -> HttpResponse:
    """Revoke a token of this person."""
    me = request.user.get_username()
    tokens.revoke(token, owner=me, actor=me)
    messages.success(request, f"Token {token} is revoked.")
    return redirect("account")


@require_POST
@login_required
def save_own_profile(request: HttpRequest) -> HttpResponse:
    """Save the name and the mail address of this person."""
    me = request.user.get_username()
    try:
        accounts.save_profile(
            me,
            full_name=request.POST.get("full_name", ""),
            email=request.POST.get("email", ""),
            actor=me,
        )
    except InvalidInput as refused:
        return _not_saved(request, "own", refused)
    messages.success(request, "Saved.")
    return redirect("account")


@require_POST
@login_required
def choose_time(request: HttpRequest) -> HttpResponse:
    """Save the time zone and the clock in which this person reads times."""
    me = request.user.get_username()
    try:
        chosen = preferences.save_time(
            me, zone=request.POST.get("zone", ""), clock=request.POST.get("clock", "")
        )
    except InvalidInput as refused:
        return _not_saved(request, "time", refused)
    zone.remember(request, chosen)
    messages.success(request, "Saved.")
    return redirect("account")


@require_POST
@login_required
def choose_mail(request: HttpRequest) -> HttpResponse:
    """Save about what this person is mailed, and to which address."""
    me = request.user.get_username()
    address = request.POST.get("address")
    try:
        is_mailed = preferences.save_mail_preference(
            me, request.POST.get("about"), address, runs="runs" in request.POST
        )
    except InvalidInput as refused:
        return _not_saved(request, "mail", refused)
    dropped = (
        ""
        if is_mailed or not address
        else " The address is not kept: choose what to be mailed about first."
    )
    messages.success(
        request, f"Saved: you are mailed nothing.{dropped}" if not is_mailed else "Saved."
    )
    return redirect("account")


@require_POST
@login_required
def log_out_everywhere(request: HttpRequest) -> HttpResponse:
    """End all sessions of this person, this one too."""
    accounts.end_sessions(User.objects.get(username=request.user.get_username()))
    logout(request)
    return redirect("login")


@require_POST
@login_required
def set_absence(request: HttpRequest) -> HttpResponse:
    """Name a deputy for some days."""
    try:
        made = absence.announce(request)
    except InvalidInput as refused:
        return _page(request, status=refused.status, away=refused)
    own = (
        f" Not in runs that {made.deputy} starts: they cannot decide those for you."
        if made.starts_runs
        else ""
    )
    messages.success(request, f"Saved: {made.deputy} decides in your place.{own}")
    return redirect("account")


def _not_saved(request: HttpRequest, form: str, refused: InvalidInput) -> HttpResponse:
    """Show the account with the problem at the field of that form."""
    problem = InvalidInput(f"{form}_{refused.field}", f"The {refused.field} {refused.detail}.")
    return _page(request, problem, refused.status)


def _page(
    request: HttpRequest,
    problem: InvalidInput | None = None,
    status: int = 200,
    away: InvalidInput | None = None,
) -> HttpResponse:
    mine = account_list.person(request.user.get_username())
    held = scopes.rights_of(frozenset(mine.groups if mine else ()))
    context = {
        "section": "account",
        "person": mine,
        "rights": [
            (name, words)
            for name, words in account_list.GROUPS.items()
            if mine and name in mine.groups
        ],
        "scopes": [(scope, words) for scope, words in account_list.SCOPES.items() if scope in held],
        "chosen": request.POST.getlist("scope"),
        "expiries": [
            (value, f"after {days} days" if days else "never") for value, days in EXPIRIES.items()
        ],
        "expiry": request.POST.get("expires", DEFAULT_EXPIRY),
        "typed": request.POST,
        "times": preferences.time_of(request.user.get_username()),
        "now": timezone.now(),
        "zones": preferences.zones(),
        "browser_zone": str(zone.of_browser(request)),
        "mail": (mail := preferences.mail_preference_of(request.user.get_username())),
        "mail_runs": "runs" in request.POST if "about" in request.POST else mail.runs,
        "mail_about": request.POST.get("about"),
        "mail_address": request.POST.get("address"),
        "problem": problem,
        "locked_until": login.refused_until(request),
        **absence.context(request, away),
    }
    return render(request, "accounts/account.html", context, status=status)
