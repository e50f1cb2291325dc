"""The pages of agents: what the workers have published."""

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from agents.models import PublishedAgent


@require_safe
@login_required
def agents(request: HttpRequest) -> HttpResponse:
    """Every agent that a worker has published."""
    published = PublishedAgent.objects.order_by("name")
    return render(request, "agents.html", {"place": "agents", "agents": published})
