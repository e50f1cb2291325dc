"""The page of people, for admins."""

from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from approvals import permissions


@require_safe
@login_required
def people(request: HttpRequest) -> HttpResponse:
    """Everybody with an account, for admins; it does not exist for anybody else."""
    standing = permissions.standing_of(permissions.actor_of(request.user))
    if standing is None or not standing.has(permissions.Scope.ADMIN):
        raise Http404
    everybody = User.objects.order_by("username")
    return render(request, "people.html", {"place": "people", "people": everybody})
