"""Calls methods of Slack's Web API, and tells whether a request is one of Slack's own (https://docs.slack.dev).

Not with the package `slack_sdk`: its client has no limit for a whole call and checks no address.
"""

import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.conf import settings

from approvals import clock
from approvals.models import SlackRequest
from approvals.outbox import webhook
from approvals.rules.identity_providers import SlackApp
from runtime.core.values.texts import plain

FRESH_SECONDS = 300  # of a request, by its signed time
USES_KEPT = timedelta(minutes=15)  # longer than a request or a link counts
MAX_ANSWER = 256 * 1024  # bytes; Slack repeats the message


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackAnswer:
    """The answer of a method: its values, or why there are none. `after` are the seconds that Slack asks to wait."""

    values: Mapping[str, Any]
    problem: str = ""
    after: float | None = None


def app() -> SlackApp:
    """Return the app of this installation, which has one."""
    configured = settings.SIGNOFF_SLACK
    assert configured is not None
    return configured


def call(method: str, fields: Mapping[str, Any], *, seconds: float | None = None) -> SlackAnswer:
    """Call a method once. Every failure is an answer with a problem."""
    reply = webhook.send_request(
        f"{app().url}/{method}",
        {
            "Content-Type": "application/json; charset=utf-8",
            "Authorization": f"Bearer {app().token}",
        },
        json.dumps(fields).encode(),
        seconds=seconds,
        max_bytes=MAX_ANSWER,
    )
    if reply.status != 200:
        return SlackAnswer(values={}, problem=reply.answer.text, after=reply.after)
    try:
        answer = json.loads(reply.body)
    except (ValueError, RecursionError):
        answer = None
    if isinstance(answer, dict) and answer.get("ok") is True:
        return SlackAnswer(values=answer)
    error = answer.get("error") if isinstance(answer, dict) else None
    return SlackAnswer(values={}, problem=plain(error) if isinstance(error, str) else "no answer")


def is_genuine(body: bytes, headers: Mapping[str, str]) -> bool:
    """Tell whether Slack signed this request, not long ago, and it comes for the first time."""
    at, sent = headers.get("X-Slack-Request-Timestamp", ""), headers.get("X-Slack-Signature", "")
    if not at.isdecimal() or abs(time.time() - float(at)) > FRESH_SECONDS:
        return False
    key = app().secret.encode()
    signature = "v0=" + hmac.digest(key, b"v0:" + at.encode() + b":" + body, "sha256").hex()
    is_signed = hmac.compare_digest(signature.encode(), sent.encode("utf-8", "surrogatepass"))
    return is_signed and use_once(signature)


def use_once(text: str) -> bool:
    """Record the use of a signed text. Return False if it was used before."""
    at = clock.now()
    SlackRequest.objects.filter(at__lt=at - USES_KEPT).delete()
    digest = hashlib.sha256(text.encode()).hexdigest()
    return SlackRequest.objects.get_or_create(digest=digest, defaults={"at": at})[1]
