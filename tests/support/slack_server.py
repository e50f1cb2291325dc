"""A Slack workspace on this machine: the methods of the Web API that we call, and its signed requests to us.

It answers as https://docs.slack.dev/reference/methods says, and refuses messages that Slack would refuse.
"""

import hashlib
import hmac
import itertools
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import urlencode

from django.test import Client

from approvals import clock
from approvals.models import OutboxMessage
from approvals.notices import slack_posts
from approvals.outbox import messages
from approvals.outbox.messages import Sender
from approvals.rules.identity_providers import SlackApp
from tests.support.loopback import respond, serving

TEAM, OTHER_TEAM = "T0ACME", "T0OTHER"
TOKEN, SECRET = "xoxb-canary-slack-token", "canary-slack-signing-secret"
USERS = {"bea": "U0BEA", "anne": "U0ANNE", "mallory": "U0MALLORY"}
_LIMITS = {"plain_text": 3000, "mrkdwn": 3000}


class Slack:
    """The workspace. `posts` has each message by its time stamp; `faults` are answers instead of the next ones."""

    def __init__(self) -> None:
        self.url = ""
        self.posts: dict[str, dict[str, Any]] = {}
        self.ephemeral: list[dict[str, Any]] = []
        self.calls: list[str] = []
        self.faults: list[Any] = []
        self.go = threading.Event()  # ends a fault that hangs
        self._stamps = itertools.count(1_700_000_000)
        self._lock = threading.Lock()

    @property
    def app(self) -> SlackApp:
        return SlackApp(token=TOKEN, secret=SECRET, url=self.url, decides=True)

    @property
    def post(self) -> dict[str, Any]:
        """The only message, as it is now."""
        [post] = self.posts.values()
        return post

    # The Web API

    def take(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        method = request.path.rpartition("/")[2]
        with self._lock:
            self.calls.append(method)
            fault = self.faults.pop(0) if self.faults else None
        if fault == "hang":
            self.go.wait(30)
            return
        if fault == 429:
            respond(request, 429, b"", Retry_After="30")
            return
        if isinstance(fault, int):
            respond(request, fault, b"upstream error")
            return
        answer = {"ok": False, "error": fault} if fault else self._answer(request, method, body)
        respond(request, 200, json.dumps(answer).encode(), Content_Type="application/json")

    def _answer(self, request: BaseHTTPRequestHandler, method: str, body: bytes) -> dict[str, Any]:
        if request.headers["Authorization"] != f"Bearer {TOKEN}":
            return {"ok": False, "error": "invalid_auth"}
        if request.headers["Content-Type"] != "application/json; charset=utf-8":
            return {"ok": False, "error": "invalid_post_type"}
        fields = json.loads(body)
        match method:
            case "chat.postMessage":
                if fields["channel"] not in USERS.values():
                    return {"ok": False, "error": "channel_not_found"}
                _check(fields["blocks"])
                ts = f"{next(self._stamps)}.000100"
                channel = f"D{fields['channel'][1:]}"
                self.posts[ts] = {**fields, "channel": channel, "ts": ts}
                return {"ok": True, "channel": channel, "ts": ts, "message": fields}
            case "chat.update":
                post = self.posts.get(fields["ts"])
                if post is None or post["channel"] != fields["channel"]:
                    return {"ok": False, "error": "message_not_found"}
                _check(fields["blocks"])
                self.posts[fields["ts"]] = fields
                return {"ok": True, "channel": fields["channel"], "ts": fields["ts"]}
            case "chat.postEphemeral":
                self.ephemeral.append(fields)
                return {"ok": True, "message_ts": "1700000000.000200"}
        return {"ok": False, "error": "unknown_method"}

    # What Slack sends to us

    def send(self, path: str, form: dict[str, str], **changes: Any) -> Any:
        """Send a signed form. `changes` are headers, `at` its time and `key` the secret."""
        body = urlencode(form).encode()
        headers = signed(body, at=changes.pop("at", None), key=changes.pop("key", SECRET))
        return deliver(path, body, {**headers, **changes})

    def command(self, text: str, who: str = "bea", *, team: str = TEAM) -> Any:
        form = {"team_id": team, "user_id": USERS[who], "user_name": who, "text": text}
        form |= {"command": "/signoff", "trigger_id": _trigger()}
        return self.send("/slack/commands", form)

    def press(
        self,
        verdict: str,
        who: str = "bea",
        *,
        team: str = TEAM,
        value: str = "",
        reason: str | None = None,
    ) -> Any:
        """Press a button of the only message, or one with this value, after typing a reason."""
        action = {"type": "button", "action_id": verdict, "value": value or self.value(verdict)}
        payload = {
            **_of_user(who, team),
            "type": "block_actions",
            "trigger_id": _trigger(),
            "channel": {"id": f"D{USERS[who][1:]}", "name": "directmessage"},
            "state": {"values": self._typed(reason)},
            "actions": [action],
        }
        return self.send("/slack/actions", {"payload": json.dumps(payload)})

    def _typed(self, reason: str | None) -> dict[str, Any]:
        """Return the values of the fields of the only message."""
        field = {"type": "plain_text_input", "value": reason}
        fields = [block for block in self.post["blocks"] if block["type"] == "input"]
        return {block["block_id"]: {block["element"]["action_id"]: field} for block in fields}

    def value(self, verdict: str) -> str:
        return str(next(b["value"] for b in self.buttons() if b["action_id"] == verdict))

    def buttons(self) -> list[dict[str, Any]]:
        """The buttons of the only message."""
        rows = [b["elements"] for b in self.post["blocks"] if b["type"] == "actions"]
        return [button for row in rows for button in row]

    @property
    def verdicts(self) -> list[str]:
        return [button["action_id"] for button in self.buttons()]

    @property
    def text(self) -> str:
        """All that the only message says."""
        return json.dumps(self.post, ensure_ascii=False)


def signed(body: bytes, *, at: float | None = None, key: str = SECRET) -> dict[str, str]:
    """Return the headers with which Slack signs a body."""
    stamp = str(int(time.time() if at is None else at))
    mac = hmac.new(key.encode(), b"v0:" + stamp.encode() + b":" + body, hashlib.sha256)
    return {"X-Slack-Request-Timestamp": stamp, "X-Slack-Signature": f"v0={mac.hexdigest()}"}


def deliver(path: str, body: bytes, headers: dict[str, str]) -> Any:
    client = Client(enforce_csrf_checks=True)
    form = "application/x-www-form-urlencoded"
    return client.post(path, body, content_type=form, headers=headers)


def send_due() -> None:
    """Make one attempt at each message that is due, as a sweeper does."""
    sender = Sender(slack_posts.KINDS)
    while (message := messages.claim()) is not None:
        sender.send_one(message)


def pass_time() -> None:
    """Make each message due that waits for another attempt, or that a sender left."""
    OutboxMessage.objects.filter(ended_at=None).update(next_at=clock.read_time(), leased_until=None)


@contextmanager
def slack_server() -> Iterator[Slack]:
    slack = Slack()
    with serving(slack.take) as url:
        slack.url = f"{url}/api"
        try:
            yield slack
        finally:
            slack.go.set()


def _trigger() -> str:
    """Return an id that is in one request only."""
    return f"trigger-{time.monotonic_ns()}"


def _of_user(who: str, team: str) -> dict[str, Any]:
    user = {"id": USERS[who], "username": who, "name": who, "team_id": team}
    return {"user": user, "team": {"id": team, "domain": "acme"}, "api_app_id": "A1"}


def _check(blocks: list[dict[str, Any]]) -> None:
    """Fail where Slack answers `invalid_blocks`."""
    assert len(blocks) <= 50
    for block in blocks:
        match block["type"]:
            case "section":
                _check_text(block["text"])
            case "context":
                assert 0 < len(block["elements"]) <= 10
                for element in block["elements"]:
                    _check_text(element)
            case "actions":
                assert 0 < len(block["elements"]) <= 25
                for button in block["elements"]:
                    assert button["text"]["type"] == "plain_text"
                    assert 0 < len(button["text"]["text"]) <= 75
                    assert 0 < len(button.get("value", "x")) <= 2000
            case "input":
                assert 0 < block["element"]["max_length"] <= 3000
            case other:
                raise AssertionError(other)


def _check_text(text: dict[str, Any]) -> None:
    assert set(text) <= {"type", "text", "emoji"}, text
    assert 0 < len(text["text"]) <= _LIMITS[text["type"]]
