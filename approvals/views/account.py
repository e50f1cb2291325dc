"""What is one's own: the account page."""

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe


@require_safe
@login_required
def account(request: HttpRequest) -> HttpResponse:
    return render(request, "account.html", {"place": "account"})
