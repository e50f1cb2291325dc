"""Takes what Slack sends: the command `/signoff link`, and clicks on the buttons of a message.

A click decides as the person whose Slack user it is, with the digest of what the message has, and passes the checks of
a page's form. Slack wants each answer within three seconds.
"""

import json
from collections.abc import Callable
from functools import wraps
from uuid import UUID

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBadRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from approvals import clock
from approvals.decisions import checks
from approvals.decisions.decide import decide
from approvals.notices import slack_posts
from approvals.notices.notice import link
from approvals.people import sign_in
from approvals.reads import approval_views
from approvals.rules.identity_providers import Identity
from runtime.errors import Forbidden, InvalidInput, RequestError
from runtime.ports.access import Actor
from runtime.triggers import signatures
from runtime.triggers.signatures import InvalidSignature, Scheme

SECONDS = 2.0  # of the answer to a refused click
_HELP = "Type `/signoff link` to connect this Slack user to your account."

View = Callable[[HttpRequest], HttpResponse]


def _require_slack(view: View) -> View:
    """Let only Slack's own requests in, each once. Without a Slack app there is no such page."""

    @csrf_exempt
    @require_POST
    @wraps(view)
    def checked(request: HttpRequest) -> HttpResponse:
        if settings.SIGNOFF_SLACK is None:
            raise Http404
        body, headers, secret = request.body, request.headers, settings.SIGNOFF_SLACK.secret
        try:
            signatures.verify(Scheme.SLACK, secret, "", headers, body, clock.read_time())
        except InvalidSignature:
            return HttpResponse(status=401)
        # By the signed text: a header may have more signatures than the one that verifies.
        if not sign_in.use_once(headers["X-Slack-Request-Timestamp"].encode() + body):
            return HttpResponse(status=401)
        try:
            return view(request)
        except (KeyError, IndexError, TypeError, ValueError, RecursionError):
            return HttpResponseBadRequest()

    return checked


@_require_slack
def take_command(request: HttpRequest) -> HttpResponse:
    """Answer the command, to its user alone."""
    form, text = request.POST, _HELP
    identity = sign_in.make_slack_identity(form["team_id"], form["user_id"], form["user_name"])
    if person := sign_in.find_holder(identity):
        text = f"This Slack user is connected to {slack_posts.escape(person.username)}."
    elif form["text"].strip() == "link":
        link = sign_in.make_slack_link(identity)
        text = f"<{link}|Connect this Slack user to your account>: once, within ten minutes."
    return JsonResponse({"response_type": "ephemeral", "text": text})


@_require_slack
def take_action(request: HttpRequest) -> HttpResponse:
    """Decide, or say why not. The message is updated when the request changes."""
    payload = json.loads(request.POST["payload"])
    action, values = payload["actions"][0], payload["state"]["values"]
    if action["action_id"] not in slack_posts.BUTTONS:  # a link that was followed
        return HttpResponse()
    identity = sign_in.make_slack_identity(payload["user"]["team_id"], payload["user"]["id"])
    approval_id, digest = action["value"].split(" ")
    reason = values["reason"]["reason"]["value"] if "reason" in values else None
    try:
        _decide(identity, UUID(approval_id), digest, action["action_id"], reason or "")
        return HttpResponse()
    except InvalidInput as exc:
        problem = f"The {exc.field} {exc.detail}."
    except RequestError as exc:
        problem = exc.detail
    page = link(f"/a/{approval_id}/")
    text = slack_posts.escape(f"{problem} {page}")
    answer = {"channel": payload["channel"]["id"], "user": identity.subject, "text": text}
    slack_posts.call("chat.postEphemeral", answer, seconds=SECONDS)
    return HttpResponse()


def _decide(identity: Identity, approval_id: UUID, digest: str, verdict: str, reason: str) -> None:
    """Decide as the person of a Slack user. Raise Forbidden for a stranger, and as `decide` does.

    A request that is decided only on its page is refused, and the refusal recorded.
    """
    person = sign_in.find_holder(identity)
    if person is None:
        raise Forbidden("not_linked", f"This Slack user is connected to no account. {_HELP}")
    actor = Actor(person=person.username, authenticated={"how": "slack"})
    with checks.audit_refusals(actor, pk=approval_id):
        approval = approval_views.read_approval(approval_id, actor=actor)
        if not slack_posts.is_decidable(approval):
            raise Forbidden("page_only", "This request is decided on its page.")
    decide(
        approval_id=approval_id,
        digest=digest,
        verdict=verdict,
        reason=reason,
        actor=actor,
        channel="slack",
    )
