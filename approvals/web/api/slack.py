"""Takes what Slack sends: the command `/signoff link`, clicks on the buttons of a message, and reasons typed for them.

A click decides as the person whose Slack user it is, with the digest of what the message has, and passes the checks of
a page's form. Slack wants each answer within three seconds.
"""

import json
from collections.abc import Callable
from functools import wraps
from typing import Any
from uuid import UUID

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBadRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from approvals.decisions import checks
from approvals.decisions.decide import decide, require_open
from approvals.notices import slack_posts
from approvals.outbox import slack
from approvals.people import sign_in
from approvals.reads import approval_views
from approvals.rules.identity_providers import Identity
from runtime.errors import Forbidden, InvalidInput, RequestError
from runtime.ports.access import Actor

SECONDS = 2.0  # of a call during a request
_HELP = "Type `/signoff link` to connect this Slack user to your account."

View = Callable[[HttpRequest], HttpResponse]


def _from_slack(view: View) -> View:
    """Let only Slack's own requests in, each once. Without a Slack app there is no such page."""

    @csrf_exempt
    @require_POST
    @wraps(view)
    def checked(request: HttpRequest) -> HttpResponse:
        if settings.SIGNOFF_SLACK is None:
            raise Http404
        if not slack.is_genuine(request.body, request.headers):
            return HttpResponse(status=401)
        try:
            return view(request)
        except (KeyError, IndexError, TypeError, ValueError, RecursionError):
            return HttpResponseBadRequest()

    return checked


@_from_slack
def take_command(request: HttpRequest) -> HttpResponse:
    """Answer the command, to its user alone."""
    form, text = request.POST, _HELP
    identity = sign_in.slack_identity(form["team_id"], form["user_id"], form["user_name"])
    if person := sign_in.person_of(identity):
        text = f"This Slack user is connected to {slack_posts.escape(person)}."
    elif form["text"].strip() == "link":
        link = sign_in.make_slack_link(identity)
        text = f"<{link}|Connect this Slack user to your account>: once, within ten minutes."
    return JsonResponse({"response_type": "ephemeral", "text": text})


@_from_slack
def take_action(request: HttpRequest) -> HttpResponse:
    """Decide, or ask for the reason. The message is updated when the request changes."""
    payload = json.loads(request.POST["payload"])
    identity = sign_in.slack_identity(payload["user"]["team_id"], payload["user"]["id"])
    reason: str | None = None
    if payload["type"] == "view_submission":
        window = payload["view"]
        verdict, context = window["callback_id"], window["private_metadata"]
        reason = window["state"]["values"]["reason"]["reason"]["value"] or ""
    else:
        action = payload["actions"][0]
        if action["action_id"] not in slack_posts.BUTTONS:  # a link that was followed
            return HttpResponse()
        verdict = action["action_id"]
        context = f"{action['value']} {payload['channel']['id']}"
    approval_id, digest, channel = context.split(" ")
    fields = {"approval_id": UUID(approval_id), "digest": digest, "verdict": verdict}
    try:
        problem = _settle(identity, fields, reason, payload["trigger_id"], context)
    except InvalidInput as exc:
        if exc.field == "reason":
            errors = {"reason": f"The reason {exc.detail}."}
            return JsonResponse({"response_action": "errors", "errors": errors})
        problem = exc.detail
    except RequestError as exc:
        problem = exc.detail
    if problem:
        text = f"{problem} {slack_posts.page_of(approval_id)}"
        slack_posts.answer(channel, identity.subject, text)
    return HttpResponse()


def _settle(
    identity: Identity, fields: dict[str, Any], reason: str | None, trigger: str, context: str
) -> str:
    """Decide as the person of a Slack user, or open the window for a reason. Return why it did not open, else nothing.

    A request that is decided only on its page is refused, and the refusal recorded. Raise Forbidden for a stranger, and
    as `decide` does.
    """
    person = sign_in.person_of(identity)
    if person is None:
        raise Forbidden("not_linked", f"This Slack user is connected to no account. {_HELP}")
    actor = Actor(person=person, authenticated={"how": "slack"})
    verdict = fields["verdict"]
    with checks.recording_refusals(actor, pk=fields["approval_id"]):
        approval = approval_views.approval(fields["approval_id"], actor=actor)
        if not slack_posts.is_decidable(approval):
            raise Forbidden("page_only", "This request is decided on its page.")
    if reason is not None or not slack_posts.needs_reason(approval, verdict):
        decide(**fields, reason=reason or "", actor=actor, channel="slack")
        return ""
    require_open(approval_id=approval.id, digest=fields["digest"], actor=actor)
    window = slack_posts.build_window(approval, verdict, context)
    reply = slack.call("views.open", {"trigger_id": trigger, "view": window}, seconds=SECONDS)
    return "Slack shows no window now." if reply.problem else ""
