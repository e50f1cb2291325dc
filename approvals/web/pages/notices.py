"""How a person hears of requests and of their own runs: their channels, and when."""

from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.forms import model_to_dict
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from approvals.notices import channels, push
from approvals.people import preferences
from approvals.web import time_zone
from approvals.web.pages.account_forms import ChannelForm, ChoiceForm, HoursForm
from runtime.errors import InvalidInput
from runtime.web.forms import PageForm


@require_safe
@login_required
def notices(request: HttpRequest) -> HttpResponse:
    """Show the channels and the hours."""
    return _page(request)


@require_POST
@login_required
def add_channel(request: HttpRequest) -> HttpResponse:
    """Add a channel."""
    form = ChannelForm(request.POST, ids="new-")
    try:
        values = form.read()
        kind, address = values.pop("kind"), values.pop("address")
        channels.add_channel(
            request.user.get_username(), kind, address, channels.ChannelChoice(**values)
        )
    except InvalidInput as refusal:
        return _page(request, form.refuse(refusal))
    messages.success(request, "Added. A first notice follows.")
    return redirect("notices")


@require_POST
@login_required
def change_channel(request: HttpRequest, channel: UUID) -> HttpResponse:
    """Change what a channel of this person tells."""
    form = ChoiceForm(request.POST, ids=f"{channel}-")
    try:
        choice = channels.ChannelChoice(**form.read())
        channels.change_channel(request.user.get_username(), channel, choice)
    except InvalidInput as refusal:
        return _page(request, form.refuse(refusal), channel)
    messages.success(request, "Saved.")
    return redirect("notices")


@require_POST
@login_required
def test_channel(request: HttpRequest, channel: UUID) -> HttpResponse:
    """Send a test notice on a channel of this person."""
    channels.send_test(request.user.get_username(), channel)
    messages.success(request, "A test is on its way. If it fails, this page says why.")
    return redirect("notices")


@require_POST
@login_required
def remove_channel(request: HttpRequest, channel: UUID) -> HttpResponse:
    """Remove a channel of this person."""
    channels.remove_channel(request.user.get_username(), channel)
    messages.success(request, "Removed.")
    return redirect("notices")


@require_POST
@login_required
def save_hours(request: HttpRequest) -> HttpResponse:
    """Save when this person hears."""
    form = HoursForm(request.POST, ids="hours-")
    try:
        channels.save_hours(request.user.get_username(), **form.read())
    except InvalidInput as refusal:
        return _page(request, form.refuse(refusal))
    messages.success(request, "Saved.")
    return redirect("notices")


def _page(
    request: HttpRequest, refused: PageForm | None = None, channel: UUID | None = None
) -> HttpResponse:
    """Show the page; `refused` is shown in place of the form as it is at first, that of a channel or another."""
    me = request.user.get_username()
    choice = channels.find_hours(me)
    times = {
        "zone": choice.zone or str(time_zone.read_reader_zone(request)),
        "quiet_from": f"{choice.quiet_from:%H:%M}" if choice.quiet_from else "",
        "quiet_until": f"{choice.quiet_until:%H:%M}" if choice.quiet_until else "",
        "urgent_at_night": choice.urgent_at_night,
        "digest": ", ".join(map(str, choice.digest)),
    }
    hours_form = HoursForm(initial=times, ids="hours-").replaced_by(refused)
    hours_form.offer("zone", [(name, name) for name in preferences.zones()])
    rows = []
    for row in channels.find_channels(me):
        form = ChoiceForm(initial=model_to_dict(row), ids=f"{row.id}-")
        rows.append((row, form.replaced_by(refused) if row.id == channel else form))
    context = {
        "section": "account",
        "channels": rows,
        "push_key": push.public_key(),
        "channel_form": ChannelForm(ids="new-").replaced_by(refused),
        "hours_form": hours_form,
    }
    return render(request, "accounts/notices.html", context, status=422 if refused else 200)
