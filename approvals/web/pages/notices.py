"""Who is told of events: a person, by their channels and hours, and other programs, by subscriptions of admins."""

from uuid import UUID

from django.contrib import messages
from django.forms import model_to_dict
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from approvals.governance import subscriptions as registry
from approvals.governance.subscriptions import Act, EventType, SubscriptionTerms
from approvals.notices import channels
from approvals.notices.transports import TRANSPORTS, push_key
from approvals.outbox import webhook
from approvals.people import preferences
from runtime.core.values.enums import RISKS
from runtime.errors import InvalidInput
from runtime.web.forms import PageForm, TypedField, take_form
from runtime.web.requests import admins, explain, read_actor, redirect_with, users


class ChoiceForm(PageForm):
    """The news that a channel tells, and how much of them."""

    from_risk = TypedField(
        "Requests that I may decide",
        "select",
        choices=[
            ("low", "all"),
            ("medium", "medium and high risk, and calls in doubt"),
            ("high", "high risk and calls in doubt"),
            ("", "none"),
        ],
        initial="low",
    )
    runs = TypedField("My own runs: when one ends, and when a text for me is released", "check")
    shows = TypedField(
        "A notice shows at most",
        "select",
        choices=[
            ("title", "the sentence of a request"),
            ("arguments", "its arguments too"),
            ("nothing", "that a request waits, and its risk"),
        ],
    )


class ChannelForm(ChoiceForm):
    """A new channel."""

    kind = TypedField(
        "By",
        choices=[(kind, row.label) for kind, row in TRANSPORTS.items() if row.label],
        initial="mail",
    )
    address = TypedField("Address", maximum=webhook.MAX_URL, required=True)
    field_order = ("kind", "address")


class HoursForm(PageForm):
    """Quiet hours and digest."""

    zone = TypedField("Time zone", "select")
    quiet_from = TypedField("Quiet from", "time", optional=True)
    quiet_until = TypedField("Quiet until", "time", optional=True)
    urgent_at_night = TypedField(
        "Tell me of high risk and calls in doubt in quiet hours too", "check"
    )
    digest = TypedField(
        "Tell me of lower risk and of my runs only at these hours",
        help="For example 9, 15. Empty: at once.",
        optional=True,
        maximum=80,
    )


def show(
    request: HttpRequest, refused: PageForm | None = None, channel: UUID | None = None
) -> HttpResponse:
    """Show the page; `refused` is shown in place of the form as it is at first, that of a channel or another."""
    me = request.user.get_username()
    choice = channels.find_hours(me)
    times = {
        "zone": choice.zone or str(preferences.read_reader_zone(request)),
        "quiet_from": f"{choice.quiet_from:%H:%M}" if choice.quiet_from else "",
        "quiet_until": f"{choice.quiet_until:%H:%M}" if choice.quiet_until else "",
        "urgent_at_night": choice.urgent_at_night,
        "digest": ", ".join(map(str, choice.digest)),
    }
    hours_form = HoursForm(initial=times, ids="hours-").choose_shown_form(refused)
    hours_form.offer("zone", [(name, name) for name in preferences.list_zones()])
    rows = []
    for row in channels.find_channels(me):
        form = ChoiceForm(initial=model_to_dict(row), ids=f"{row.id}-")
        rows.append((row, form.choose_shown_form(refused) if row.id == channel else form))
    context = {
        "section": "account",
        "channels": rows,
        "push_key": push_key(),
        "channel_form": ChannelForm(ids="new-").choose_shown_form(refused),
        "hours_form": hours_form,
    }
    return render(request, "accounts/notices.html", context, status=422 if refused else 200)


notices = users.guard_page(show)


@users.action
@take_form(ChannelForm, show, ids="new-")
def add_channel(request: HttpRequest, form: ChannelForm) -> HttpResponse:
    """Add a channel."""
    values = form.read()
    kind, address = values.pop("kind"), values.pop("address")
    choice = channels.ChannelChoice(**values)
    channels.add_channel(request.user.get_username(), kind, address, choice)
    return redirect_with(request, "Added. A first notice follows.", "notices")


@users.action
@take_form(ChoiceForm, show, ids="{channel}-")
def change_channel(request: HttpRequest, form: ChoiceForm, channel: UUID) -> HttpResponse:
    """Change what a channel of this person tells."""
    choice = channels.ChannelChoice(**form.read())
    channels.change_channel(request.user.get_username(), channel, choice)
    return redirect_with(request, "Saved.", "notices")


@users.action
def test_channel(request: HttpRequest, channel: UUID) -> HttpResponse:
    """Send a test notice on a channel of this person."""
    try:
        channels.send_test(request.user.get_username(), channel)
    except InvalidInput as refusal:
        messages.error(request, explain(refusal))
        return redirect("notices")
    message = "A test is on its way. If it fails, this page says why."
    return redirect_with(request, message, "notices")


@users.action
def remove_channel(request: HttpRequest, channel: UUID) -> HttpResponse:
    """Remove a channel of this person."""
    channels.remove_channel(request.user.get_username(), channel)
    return redirect_with(request, "Removed.", "notices")


@users.action
@take_form(HoursForm, show, ids="hours-")
def save_hours(request: HttpRequest, form: HoursForm) -> HttpResponse:
    """Save when this person hears."""
    channels.save_hours(request.user.get_username(), **form.read())
    return redirect_with(request, "Saved.", "notices")


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


def list_subscriptions(request: HttpRequest, refused: PageForm | None = None) -> HttpResponse:
    """Show the subscriptions."""
    rows = registry.find_all(actor=read_actor(request))
    form = SubscriptionForm(ids="new-").choose_shown_form(refused)
    context = {"section": "subscriptions", "rows": rows, "form": form}
    status = 422 if refused else 200
    return render(request, "accounts/subscriptions.html", context, status=status)


def show_subscription(
    request: HttpRequest, subscription_id: UUID, secret: str | None = None
) -> HttpResponse:
    """Show a subscription and the newest messages to it."""
    actor = read_actor(request)
    context = {
        "section": "subscriptions",
        "row": registry.find(subscription_id, actor=actor),
        "sent": registry.list_sent_messages(subscription_id, actor=actor),
        "secret": secret,
    }
    return render(request, "accounts/subscription.html", context)


subscriptions = admins.guard_page(list_subscriptions)
subscription = admins.guard_page(show_subscription)


@admins.action
@take_form(SubscriptionForm, list_subscriptions, ids="new-")
def add_subscription(request: HttpRequest, form: SubscriptionForm) -> HttpResponse:
    """Create a subscription, and show its secret."""
    view = registry.subscribe(SubscriptionTerms(**form.read()), actor=read_actor(request))
    return show_subscription(request, view.id, view.secret)


@admins.action
def change_subscription(request: HttpRequest, subscription_id: UUID, act: Act) -> HttpResponse:
    """Do an act on a subscription. A new secret is shown by this answer alone."""
    view = registry.change(subscription_id, act, actor=read_actor(request))
    if view.secret:
        return show_subscription(request, subscription_id, view.secret)
    if act is Act.DELETE:
        return redirect_with(request, _ANSWERS[act], "subscriptions")
    return redirect_with(request, _ANSWERS[act], "subscription", subscription_id)


@admins.action
def retry_message(request: HttpRequest, subscription_id: UUID, message: UUID) -> HttpResponse:
    """Send a message again that was given up."""
    registry.retry(subscription_id, message, actor=read_actor(request))
    answer = "It is sent again, for three more days."
    return redirect_with(request, answer, "subscription", subscription_id)
