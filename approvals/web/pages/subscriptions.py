"""The pages of subscriptions, for admins: programs that are told of events, and the messages to them."""

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from approvals.errors import UnknownSubscription
from approvals.governance import subscriptions as registry
from approvals.governance.subscriptions import Act, EventType, SubscriptionTerms
from runtime.core.values.enums import RISKS
from runtime.errors import InvalidInput
from runtime.web.forms import PageForm, TypedField
from runtime.web.requests import actor_of, admins_only

_ANSWERS = {
    Act.PAUSE: "It is told nothing until you resume it.",
    Act.RESUME: "It is told of events from now on.",
    Act.TEST: "A test is on its way. Reload this page to see the answer.",
    Act.DELETE: "The subscription is deleted.",
}


class SubscriptionForm(PageForm):
    """A new subscription."""

    name = TypedField("Name", maximum=registry.MAX_NAME, required=True)
    url = TypedField("URL", help="Begins with https://", required=True)
    events = TypedField("Events", "checks", choices=[(name, name) for name in EventType])
    agent = TypedField("Agent", optional=True, maximum=registry.MAX_FILTER)
    tool = TypedField(
        "Tool", optional=True, maximum=registry.MAX_FILTER, help="Leaves out events of runs."
    )
    risk = TypedField(
        "Least risk",
        help="Also leaves out events of runs.",
        choices=[("", "any"), *((str(risk), str(risk)) for risk in RISKS)],
    )
    with_arguments = TypedField("With the arguments of calls, but no secrets", "check")


@require_safe
@admins_only
def subscriptions(request: HttpRequest) -> HttpResponse:
    """List the subscriptions."""
    return _page(request, SubscriptionForm(ids="new-"))


@require_POST
@never_cache
@admins_only
def add_subscription(request: HttpRequest) -> HttpResponse:
    """Create a subscription, and show its secret."""
    form = SubscriptionForm(request.POST, ids="new-")
    try:
        terms = SubscriptionTerms(**form.read())
        view = registry.subscribe(terms, actor=actor_of(request))
    except InvalidInput as refusal:
        return _page(request, form.refuse(refusal), 422)
    return _show(request, view.id, secret=view.secret)


@require_safe
@admins_only
def subscription(request: HttpRequest, subscription_id: UUID) -> HttpResponse:
    """Show a subscription and the newest messages to it."""
    return _show(request, subscription_id)


@require_POST
@never_cache
@admins_only
def change_subscription(request: HttpRequest, subscription_id: UUID, act: Act) -> HttpResponse:
    """Do an act on a subscription. A new secret is shown by this answer alone."""
    try:
        view = registry.change(subscription_id, act, actor=actor_of(request))
    except UnknownSubscription as exc:
        raise Http404 from exc
    if view.secret:
        return _show(request, subscription_id, secret=view.secret)
    messages.success(request, _ANSWERS[act])
    if act is Act.DELETE:
        return redirect("subscriptions")
    return redirect("subscription", subscription_id)


@require_POST
@admins_only
def retry_message(request: HttpRequest, subscription_id: UUID, message: UUID) -> HttpResponse:
    """Send a message again that was given up."""
    try:
        registry.retry(subscription_id, message, actor=actor_of(request))
    except UnknownSubscription as exc:
        raise Http404 from exc
    messages.success(request, "It is sent again, for three more days.")
    return redirect("subscription", subscription_id)


def _page(request: HttpRequest, form: PageForm, status: int = 200) -> HttpResponse:
    rows = registry.find_all(actor=actor_of(request))
    context = {"section": "subscriptions", "rows": rows, "form": form}
    return render(request, "accounts/subscriptions.html", context, status=status)


def _show(request: HttpRequest, subscription_id: UUID, **fields: Any) -> HttpResponse:
    actor = actor_of(request)
    try:
        view = registry.find(subscription_id, actor=actor)
        sent = registry.sent_messages(subscription_id, actor=actor)
    except UnknownSubscription as exc:
        raise Http404 from exc
    context = {"section": "subscriptions", "row": view, "sent": sent, **fields}
    return render(request, "accounts/subscription.html", context)
