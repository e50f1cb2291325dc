"""The page of agents outside, for those who may provision them: their instances, and the tokens of provisioners.

Such a token is made like every other one, on the account page of its owner.
"""

from uuid import UUID

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from approvals.decisions import external_requests
from approvals.people import instances as registry
from runtime.errors import InvalidInput
from runtime.web.forms import PageForm, TypedField, take_form
from runtime.web.requests import Audience, read_actor, redirect_with

provisioners = Audience(registry.require_provisioner)


class InstanceForm(PageForm):
    """A new instance of an agent outside."""

    name = TypedField("Name", help="Reviewers read it.", maximum=registry.MAX_NAME, required=True)


def show(request: HttpRequest, refused: PageForm | None = None) -> HttpResponse:
    """Show the instances, or those that match `q`, and the tokens that manage them."""
    search = request.GET.get("q", "").strip().replace("\x00", "")
    page, wrong_search = registry.InstancePage(items=(), omitted=0), None
    try:
        page = registry.list_instances(search)
    except InvalidInput as refusal:
        wrong_search = refusal
    rows = registry.list_provisioner_tokens()
    context = {
        "section": "instances",
        "page": page,
        "living": [row for row in page.items if row.state != "ended"],
        "ended": [row for row in page.items if row.state == "ended"],
        "search": search,
        "wrong_search": wrong_search,
        "tokens": [(row.owner.get_username(), row) for row in rows],
        "form": InstanceForm(ids="new-").choose_shown_form(refused),
    }
    status = 422 if refused or wrong_search else 200
    return render(request, "accounts/instances.html", context, status=status)


instances = provisioners.guard_page(show)


@provisioners.action
@take_form(InstanceForm, show, ids="new-")
def add_instance(request: HttpRequest, form: InstanceForm) -> HttpResponse:
    """Create an instance. This answer is the only page that ever shows its credential."""
    fields = registry.InstanceFields(name=form.read()["name"])
    created, _ = registry.provision(fields, actor=read_actor(request))
    context = {
        "section": "instances",
        "instance": created["instance"],
        "plain": created["credential"]["token"],
        "address": settings.PUBLIC_URL,
    }
    return render(request, "accounts/credential.html", context)


@provisioners.form
def end_instance(request: HttpRequest, instance: UUID) -> HttpResponse:
    """Say what ending an instance cancels, and end it by the second step."""
    row = registry.read_row(instance)
    if request.method == "POST":
        count = external_requests.end_instance(instance=instance, actor=read_actor(request))
        message = f"The instance has ended. Requests cancelled: {count}."
        return redirect_with(request, message, "instances")
    pending = external_requests.count_pending(instance)
    context = {"section": "instances", "row": row, "pending": pending}
    return render(request, "accounts/end_instance.html", context)


@provisioners.action
def revoke_provisioner_token(request: HttpRequest, token: str) -> HttpResponse:
    """Revoke a token of any provisioner."""
    registry.revoke_token(token, actor=read_actor(request))
    message = f"Token {token} is revoked. The instances that it created have not ended."
    return redirect_with(request, message, "instances")
