"""Logs people in, by password, link or OpenID provider, connects sign-ins to accounts, and opens the first page.

Each function imports allauth when it needs it: most processes have no provider, and cannot load it.
"""

from dataclasses import asdict
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import login as log_in
from django.contrib.auth import logout as log_out
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from approvals import clock
from approvals.errors import LinkOver, NotSignedIn
from approvals.notices import channels
from approvals.people import login as login_throttle
from approvals.people import password_links, preferences, second_factors, sign_in
from approvals.reads import inbox
from approvals.rights import principals
from approvals.rights.principals import Scope
from approvals.rules.identity_providers import Identity, IdentityProvider
from approvals.rules.policy import Group, is_fresh
from approvals.web.pages.second_factors import (
    BACKEND,
    PASSWORD,
    SIGNED_IN,
    ask_proof,
    begin,
    keep_own_page,
)
from runtime.errors import InvalidInput
from runtime.web.forms import PageForm, TypedField
from runtime.web.requests import AUTHENTICATED, redirect_with, users

UNSENT = "You were logged out before this was sent. Nothing was decided or changed."
TEMPLATE = "accounts/password_link.html"


_PASSWORD: dict[str, Any] = {"autocomplete": "new-password", "required": True}


class NewPasswordForm(PageForm):
    """A new password, typed twice."""

    password = TypedField(
        "New password",
        "password",
        help="At least 8 characters, not only digits, not a common one, not like the username.",
        **_PASSWORD,
    )
    again = TypedField("Confirm password", "password", **_PASSWORD)

    def clean(self) -> None:
        """Refuse two different texts."""
        if self.cleaned_data["password"] != self.cleaned_data["again"]:
            self.add_error("password", "was not typed the same way twice")


class LoginForm(AuthenticationForm):
    """Django's form with a message in plain words."""

    error_messages = {
        "invalid_login": "The username or the password is wrong.",
        "inactive": "This account is disabled.",
    }


class Login(LoginView):
    """Django's login view; a throttled login is told when to try again, for any username."""

    authentication_form = LoginForm
    template_name = "accounts/login.html"
    redirect_authenticated_user = True

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add the OpenID providers."""
        return super().get_context_data(**kwargs, providers=settings.SIGNOFF_OIDC.values())

    def get_success_url(self) -> str:
        """Return the page to open after the login: `next` if it is a path of this site, else the start page."""
        url = super().get_success_url()
        return url if url.startswith("/") else self.get_default_redirect_url()

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        """Log in. If a form was sent without a session before, the next page says that it had no effect."""
        if "unsent" in self.request.GET:
            messages.warning(self.request, UNSENT)
        login_throttle.forget(self.request, form.get_user().get_username())
        person = form.get_user()
        if second_factors.list_factors(person):
            return begin(self.request, person, self.get_success_url(), PASSWORD)
        response = super().form_valid(form)
        self.request.session[AUTHENTICATED] = {"how": PASSWORD}
        preferences.remember(
            self.request, preferences.read_time_preference(form.get_user().get_username())
        )
        return response

    def form_invalid(self, form: AuthenticationForm) -> HttpResponse:
        """Show the form again; a throttled login gets the time of the next attempt."""
        locked_until = login_throttle.find_refusal_end(self.request)
        context = self.get_context_data(form=form, locked_until=locked_until)
        return self.render_to_response(context, status=429 if locked_until else 200)


login = Login.as_view()


@users.guard_page
def redirect_home(request: HttpRequest) -> HttpResponse:
    """Redirect to the person's first page.

    Admins see the overview, reviewers the inbox, requesters their requests. A person who decides and starts runs sees
    the inbox if a request waits there.
    """
    principal = principals.find_principal(principals.make_actor(request.user))
    if principal is None:
        return redirect("runs")
    if Group.ADMINS in principal.groups:
        return redirect("overview")
    decides, starts = (principal.has(scope) for scope in (Scope.APPROVALS_DECIDE, Scope.RUNS_START))
    if decides and not (starts and not inbox.count_requests(principal).mine):
        return redirect("inbox")
    return redirect("mine" if starts else "runs")


@require_http_methods(["GET", "HEAD", "POST"])
def choose_password(request: HttpRequest, plain: str) -> HttpResponse:
    """Show the form for a password, and set it on POST."""
    form = NewPasswordForm(request.POST)
    try:
        person = password_links.read_username(plain)
        if request.method != "POST":
            return render(request, TEMPLATE, {"person": person, "form": form})
        password_links.use(plain, form.read()["password"])
    except LinkOver as exc:
        return render(request, TEMPLATE, {"over": exc.detail}, status=exc.status)
    except InvalidInput as exc:
        return render(
            request, TEMPLATE, {"person": person, "form": form.refuse(exc)}, status=exc.status
        )
    return redirect_with(request, "Your password is saved. Log in with it.", "login")


BEGUN_SECONDS = 600  # of the session of a stranger, who may never come back
_WAITING = "oidc_waiting"  # an identity that its owner may connect


@require_GET
def start(request: HttpRequest, provider: str) -> HttpResponse:
    """Lead to the provider, and from there back to the page `next`."""
    company, page = _require_provider(provider), keep_own_page(request.GET.get("next", ""))
    if not request.user.is_authenticated:
        request.session.set_expiry(BEGUN_SECONDS)
    from approvals.people import oidc

    try:
        step_up = request.user.is_authenticated and "step_up" in request.GET
        return oidc.begin(request, company, page, step_up=step_up)
    except NotSignedIn as refusal:
        return _show_refusal(request, refusal)


@require_GET
def finish_log_in(request: HttpRequest, provider: str) -> HttpResponse:
    """Log in whom the provider identified. A person who is logged in already may connect the identity."""
    company = _require_provider(provider)
    from approvals.people import oidc

    try:
        signed_in = oidc.finish(request, company)
        identity = signed_in.identity
        if request.user.is_authenticated and signed_in.step_up:
            sign_in.check_owner(request.user.get_username(), identity)
            if not is_fresh(signed_in.proof, clock.read_time()):
                raise NotSignedIn(
                    f"{company.label} did not check now that it is you. Use an app or a passkey."
                )
            request.session[AUTHENTICATED] = signed_in.proof
            page = signed_in.page or "account"
            return redirect_with(request, "Confirmed. You can decide now.", page)
        if request.user.is_authenticated:
            request.session[_WAITING] = {**asdict(identity), "provider": provider}
            return redirect("connect_sign_in")
        with sign_in.lock_for_sign_in(identity) as person:
            at = clock.to_wire(clock.read_time())
            ours = {"provider": provider, "token": signed_in.token, "at": at}
            if company.asks_second and second_factors.list_factors(person):
                request.session[SIGNED_IN] = ours
                page = signed_in.page or settings.LOGIN_REDIRECT_URL
                return begin(request, person, page, company.giver)
            log_in(request, person, backend=BACKEND)
            request.session.set_expiry(None)
            request.session[AUTHENTICATED] = signed_in.proof
            request.session[SIGNED_IN] = ours
            request.session.save()
    except NotSignedIn as refusal:
        return _show_refusal(request, refusal)
    preferences.remember(request, preferences.read_time_preference(person.get_username()))
    return redirect(signed_in.page or settings.LOGIN_REDIRECT_URL)


@users.form
def connect(request: HttpRequest) -> HttpResponse:
    """Show which identity waits, and connect it once its owner proved who they are."""
    waiting = request.session.get(_WAITING)
    if waiting is None or waiting["provider"] not in settings.SIGNOFF_OIDC:
        return redirect("account")
    identity = Identity(**{**waiting, "provider": _require_provider(waiting["provider"])})
    if page := ask_proof(request, "accounts/connect.html", identity=identity):
        return page
    del request.session[_WAITING]
    try:
        sign_in.connect(request.user.get_username(), identity)
    except NotSignedIn as refusal:
        messages.error(request, refusal.detail)
        return redirect("account")
    message = f"You can sign in with {identity.provider.label} now."
    return redirect_with(request, message, "account")


@users.form
def link_slack(request: HttpRequest, token: str) -> HttpResponse:
    """Show which Slack user a link connects, and connect it once the person proved who they are."""
    if settings.SIGNOFF_SLACK is None:
        raise Http404
    try:
        identity = sign_in.read_slack_link(token)
        if page := ask_proof(request, "accounts/link_slack.html", identity=identity):
            return page
        sign_in.connect_slack(request.user.get_username(), token)
        channels.add_slack(request.user.get_username())
    except NotSignedIn as refusal:
        messages.error(request, refusal.detail)
    else:
        messages.success(request, "Your Slack user is connected.")
    return redirect("account")


@users.action
def disconnect(request: HttpRequest) -> HttpResponse:
    """End all sign-ins of this person at providers, and the other sessions."""
    sign_in.disconnect_all(request.user.get_username(), keep=request.session.session_key)
    return redirect_with(request, "Disconnected. Your other sessions have ended.", "account")


@require_POST
def end_session(request: HttpRequest) -> HttpResponse:
    """Log out here, and at the provider if one signed the person in."""
    ours: dict[str, Any] = request.session.get(SIGNED_IN) or {}
    log_out(request)
    if ours.get("provider") in settings.SIGNOFF_OIDC:
        from approvals.people import oidc

        provider = _require_provider(ours["provider"])
        if address := oidc.find_logout_address(request, provider, ours["token"]):
            context = {"address": address, "label": provider.label}
            return render(request, "accounts/logged_out.html", context)
    return redirect(settings.LOGOUT_REDIRECT_URL)


def _require_provider(name: str) -> IdentityProvider:
    provider: IdentityProvider | None = settings.SIGNOFF_OIDC.get(name)
    if provider is None:
        raise Http404
    return provider


def _show_refusal(request: HttpRequest, refusal: NotSignedIn) -> HttpResponse:
    return render(request, "accounts/not_signed_in.html", {"detail": refusal.detail}, status=403)
