"""The page of a password link. The link itself is the right to set the password, once, so it needs no login."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from approvals.errors import LinkOver
from approvals.people import password_links
from approvals.web.pages.account_forms import NewPasswordForm
from runtime.errors import InvalidInput

TEMPLATE = "accounts/password_link.html"


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
