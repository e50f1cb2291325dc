"""Logs people in, also by a link with which they choose their password, and redirects them to their first page."""

from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from approvals.errors import LinkOver
from approvals.people import login as login_throttle
from approvals.people import password_links, preferences, second_factors
from approvals.reads import inbox
from approvals.rights import principals
from approvals.rights.principals import Scope
from approvals.rules.roles import Group
from approvals.web import time_zone
from approvals.web.pages.account_forms import NewPasswordForm
from approvals.web.pages.second_factors import PASSWORD, begin
from runtime.errors import InvalidInput
from runtime.web.requests import AUTHENTICATED

UNSENT = "You were logged out before this was sent. Nothing was decided or changed."
TEMPLATE = "accounts/password_link.html"


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
        if second_factors.of_person(person):
            return begin(self.request, person, self.get_success_url(), PASSWORD)
        response = super().form_valid(form)
        self.request.session[AUTHENTICATED] = {"how": PASSWORD}
        time_zone.remember(self.request, preferences.time_of(form.get_user().get_username()))
        return response

    def form_invalid(self, form: AuthenticationForm) -> HttpResponse:
        """Show the form again; a throttled login gets the time of the next attempt."""
        locked_until = login_throttle.refused_until(self.request)
        context = self.get_context_data(form=form, locked_until=locked_until)
        return self.render_to_response(context, status=429 if locked_until else 200)


login = Login.as_view()


@require_safe
@login_required
def home(request: HttpRequest) -> HttpResponse:
    """Redirect to the person's first page.

    Admins see the overview, reviewers the inbox, requesters their requests. A person who decides and starts runs sees
    the inbox if a request waits there.
    """
    principal = principals.principal_of(principals.actor_of(request.user))
    if principal is None:
        return redirect("runs")
    if Group.ADMINS in principal.groups:
        return redirect("overview")
    decides, starts = (principal.has(scope) for scope in (Scope.APPROVALS_DECIDE, Scope.RUNS_START))
    if decides and not (starts and not inbox.counts(principal).mine):
        return redirect("inbox")
    return redirect("mine" if starts else "runs")


@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def choose_password(request: HttpRequest, plain: str) -> HttpResponse:
    """Show the form for a password, and set it on POST."""
    form = NewPasswordForm(request.POST)
    try:
        person = password_links.person_of(plain)
        if request.method != "POST":
            return render(request, TEMPLATE, {"person": person, "form": form})
        password_links.use(plain, form.read()["password"])
    except LinkOver as exc:
        return render(request, TEMPLATE, {"over": exc.detail}, status=exc.status)
    except InvalidInput as exc:
        return render(
            request, TEMPLATE, {"person": person, "form": form.refuse(exc)}, status=exc.status
        )
    messages.success(request, "Your password is saved. Log in with it.")
    return redirect("login")
