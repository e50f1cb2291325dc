"""Logs people in and out, and redirects them to their first page."""

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView, LogoutView
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_safe

from approvals.accounts import login_throttle
from approvals.permissions import principals, scopes

UNSENT = "You were logged out before this was sent. Nothing was decided or changed."


class Login(LoginView):
    """Django's login view; a throttled login is told when to try again, for any username."""

    template_name = "accounts/login.html"
    redirect_authenticated_user = True

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        """Log in. If a form was sent without a session before, the next page says that it had no effect."""
        if "unsent" in self.request.GET:
            messages.warning(self.request, UNSENT)
        login_throttle.forget(self.request, form.get_user().get_username())
        return super().form_valid(form)

    def form_invalid(self, form: AuthenticationForm) -> HttpResponse:
        """Show the form again; a throttled login gets the time of the next attempt."""
        locked_until = login_throttle.refused_until(self.request)
        context = self.get_context_data(form=form, locked_until=locked_until)
        return self.render_to_response(context, status=429 if locked_until else 200)


login = Login.as_view()
logout = LogoutView.as_view(http_method_names=["post"])


@require_safe
@login_required
def home(request: HttpRequest) -> HttpResponse:
    """Redirect to the inbox, or to the runs if the person cannot decide."""
    principal = principals.principal_of(principals.actor_of(request.user))
    decides = principal is not None and principal.has(scopes.Scope.APPROVALS_DECIDE)
    return redirect("inbox" if decides else "runs")
