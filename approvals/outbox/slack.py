"""Calls methods of Slack's Web API, and tells whether a request is one of Slack's own (https://docs.slack.dev).

Not with the package `slack_sdk`: its client has no limit for a whole call and checks no address.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from django.conf import settings

from approvals import clock
from approvals.models import SlackRequest
from approvals.outbox import webhook
from approvals.outbox.messages import AttemptResult
from approvals.rules.identity_providers import SlackApp
from runtime.core.values.texts import plain
from runtime.triggers import signatures
from runtime.triggers.signatures import InvalidSignature, Scheme

USES_KEPT = timedelta(minutes=15)  # longer than a request or a link counts
MAX_ANSWER = 256 * 1024  # bytes; Slack repeats the message


def app() -> SlackApp:
    """Return the app of this installation, which has one."""
    configured = settings.SIGNOFF_SLACK
    assert configured is not None
    return configured


def call(
    method: str, fields: Mapping[str, Any], *, seconds: float | None = None
) -> tuple[AttemptResult, Mapping[str, Any]]:
    """Call a method once. Return whether Slack took it, or why not, and the values of its answer."""
    reply = webhook.send_request(
        f"{app().url}/{method}",
        {
            "Content-Type": "application/json; charset=utf-8",
            "Authorization": f"Bearer {app().token}",
        },
        json.dumps(fields).encode(),
        seconds=seconds,
        max_bytes=MAX_ANSWER,
        internal=True,
    )
    if reply.status != 200:
        return replace(reply, is_taken=False), {}
    try:
        values = json.loads(reply.body)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        return AttemptResult(text="no answer"), {}
    is_taken = values.get("ok") is True
    text = "ok" if is_taken else plain(str(values.get("error")))
    return AttemptResult(is_taken=is_taken, text=text), values


def is_genuine(body: bytes, headers: Mapping[str, str]) -> bool:
    """Tell whether Slack signed this request, not long ago, and it comes for the first time."""
    try:
        signatures.verify(Scheme.SLACK, app().secret, "", headers, body, clock.now())
    except InvalidSignature:
        return False
    # By the signed text: a header may have more signatures than the one that verifies.
    return use_once(headers["X-Slack-Request-Timestamp"].encode() + body)


def use_once(signed: bytes) -> bool:
    """Record the use of a signed text. Return False if it was used before."""
    at = clock.now()
    SlackRequest.objects.filter(at__lt=at - USES_KEPT).delete()
    digest = hashlib.sha256(signed).hexdigest()
    return SlackRequest.objects.get_or_create(digest=digest, defaults={"at": at})[1]
