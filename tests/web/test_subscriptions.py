"""Programs are told of events by signed webhooks: each once, in order.

They verify as docs/how-to/send-webhooks.md shows, and with the package of Standard Webhooks.
"""

import html
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from django.db import transaction
from django.test import Client, override_settings
from standardwebhooks import Webhook

from approvals import clock
from approvals.decisions.decide import undo
from approvals.governance import subscriptions
from approvals.governance.subscriptions import EventType
from approvals.models import Approval, OutboxMessage, Subscription
from approvals.outbox import messages
from approvals.outbox.messages import Sender
from approvals.port.adapter import ApprovalService
from config.env.environment import ROOT
from runtime.keyring import sealing
from runtime.models import Run
from tests.support import seeds
from tests.support.api_client import Caller, field_of
from tests.support.loopback import respond
from tests.support.office import BEA, Office
from tests.support.pages import has, queries_at_most, shows, text_of
from tests.support.seeds import decide
from tests.web.aap.receivers import pass_time, serving

NOW = timedelta(seconds=1)
PAGE = ROOT / "docs/how-to/send-webhooks.md"
_names: dict[str, Any] = {}
exec(re.findall("```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[0], _names)  # noqa: S102
verify = _names["verify"]


class Program:
    """A receiver that verifies with its secret. `events` are the bodies as they came."""

    def __init__(self, api: Caller, url: str) -> None:
        self.api, self.url = api, url
        self.secret = ""
        self.path = ""
        self.events: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.statuses: list[int] = []
        self.answer = b""

    def subscribe(self, **terms: Any) -> None:
        body = {"name": "Bot", "url": self.url, "events": list(EventType), **terms}
        answer = self.api.post("/subscriptions", body)
        assert answer.status_code == 200, answer.content
        self.secret, self.path = answer.json()["secret"], f"/subscriptions/{answer.json()['id']}"

    def act(self, act: str) -> Any:
        return self.api.post(f"{self.path}/{act}")

    def take(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        headers = dict(request.headers.items())
        self.headers.append(headers)
        assert verify(self.secret, headers, body)
        self.events.append(Webhook(self.secret).verify(body, headers))
        status = self.statuses.pop(0) if self.statuses else 204
        respond(request, status, b"" if status == 204 else self.answer)

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.events]


@pytest.fixture
def program(office: Office, admin_api: Caller, settings: Any) -> Iterator[Program]:
    settings.SIGNOFF_LOOPBACK_WEBHOOKS = True
    program = Program(admin_api, "")
    with serving(program.take) as program.url:
        yield program


def send_due() -> None:
    sender = Sender(subscriptions.KINDS)
    while (message := messages.claim()) is not None:
        sender.send_one(message)


def test_a_program_is_told_of_a_request_and_its_decision(program: Program, office: Office) -> None:
    office.start()
    program.subscribe()
    run = office.start()
    send_due()
    assert program.types == ["run.started", "run.waiting", "approval.requested"]
    request = office.request(run)
    assert program.events[2]["data"] == {
        "approval": str(request.id),
        "run": str(run),
        "agent": "hr_onboarding",
        "status": "pending",
        "kind": "approval",
        "tool": "set_privileges",
        "risk": "medium",
        "title": "Set the privileges of newhire to 3",
    }
    program.events.clear()
    office.approve(run)
    send_due()
    assert program.types == ["approval.decided", "run.completed"]
    assert program.events[0]["data"]["status"] == "approved"
    assert program.events[1]["data"] == {
        "run": str(run),
        "agent": "hr_onboarding",
        "status": "completed",
    }


def test_each_end_is_told(program: Program, office: Office) -> None:
    program.subscribe()
    denied, cancelled = office.start(), office.start()
    office.deny(denied, "No")
    office.cancel(cancelled, "No")
    expired = office.request(office.start())
    Approval.objects.filter(pk=expired.pk).update(expires_at=clock.read_time())
    ApprovalService().expire(expired.gate)
    send_due()
    ends = {(event["type"], event["data"]["status"]) for event in program.events}
    assert {
        ("approval.decided", "denied"),
        ("approval.cancelled", "cancelled"),
        ("approval.expired", "expired"),
        ("run.cancelled", "cancelled"),
    } <= ends
    of_one = [event for event in program.events if event["data"]["run"] == str(cancelled)]
    assert [event["type"] for event in of_one] == [
        "run.started",
        "run.waiting",
        "approval.requested",
        "approval.cancelled",
        "run.cancelled",
    ]


def test_a_decision_is_told_when_it_cannot_be_undone(program: Program, office: Office) -> None:
    program.subscribe(events=["approval.decided"])
    request = office.request(office.start())
    with override_settings(SIGNOFF_UNDO_SECONDS=60):
        decide(request, BEA)
    send_due()
    assert program.events == []
    undo(approval_id=request.id, actor=BEA)
    assert not OutboxMessage.objects.exists()
    decide(office.request(request.run_id), BEA, "deny", "No")
    send_due()
    assert [event["data"]["status"] for event in program.events] == ["denied"]


@pytest.mark.parametrize(
    ("terms", "types"),
    [
        ({"agent": "another"}, []),
        ({"agent": "hr_onboarding"}, ["run.started", "run.waiting", "approval.requested"]),
        ({"tool": "set_privileges"}, ["approval.requested"]),
        ({"tool": "another"}, []),
        ({"risk": "medium"}, ["approval.requested"]),
        ({"risk": "high"}, []),
        ({"events": ["run.waiting"]}, ["run.waiting"]),
    ],
)
def test_a_program_is_told_of_what_it_asked_for(
    program: Program, office: Office, terms: dict[str, Any], types: list[str]
) -> None:
    program.subscribe(**terms)
    office.start()
    send_due()
    assert program.types == types


def test_arguments_are_told_to_those_who_asked_for_them(program: Program, office: Office) -> None:
    program.subscribe(events=["approval.requested", "approval.decided"], with_arguments=True)
    quiet = Program(program.api, program.url)
    quiet.subscribe(events=["approval.requested"])
    run = office.start()
    arguments = json.loads(office.request(run).args)
    bodies = [
        json.loads(text or "") for text in OutboxMessage.objects.values_list("body", flat=True)
    ]
    told = [body["data"].get("arguments") for body in bodies]
    assert sorted(told, key=bool) == [None, arguments]
    edited = {**arguments, "security_level": 1}
    decide(office.request(run), BEA, "edit", arguments=edited)
    decided = OutboxMessage.objects.get(kind="approval.decided")
    assert json.loads(decided.body or "")["data"]["arguments"] == edited


def test_arguments_are_told_as_people_see_them_unless_they_are_too_long(
    program: Program, office: Office
) -> None:
    program.subscribe(events=["approval.requested", "approval.cancelled"], with_arguments=True)
    sealed = sealing.seal("hunter2", sealing.encode_location(seeds.PATH[-1], "args", "password"))
    forged = 'not {"$secret": "x"}'
    marked: dict[str, Any] = {"properties": {"pin": {"writeOnly": True}, "text": True}}
    for args, expected in (
        ('{"pin": "1234", "text": ""}', {"pin": "••••", "text": ""}),
        (
            json.dumps({"password": sealed, "parts": [sealed], "text": forged}),
            {"password": "••••", "parts": ["••••"], "text": forged},
        ),
        (json.dumps(sealed), "••••"),
        ('{"n": 0.1, "ü": ["••••"]}', {"n": 0.1, "ü": ["••••"]}),
        (json.dumps({"text": "x" * 32_768}), None),
    ):
        OutboxMessage.objects.all().delete()
        seeds.pending(args=json.loads(args), schema=marked)
        (text,) = OutboxMessage.objects.values_list("body", flat=True)
        assert json.loads(text or "")["data"]["arguments"] == expected
        assert sealed["$secret"] not in (text or "")
    seeds.pending(args={"text": ""})
    Approval.objects.update(schema="sha256:missing")  # which values it marks is not known then
    Approval.objects.update(status="cancelled", decided_at=clock.read_time(), reason="")
    cancelled = OutboxMessage.objects.filter(kind="approval.cancelled")
    assert all(json.loads(row.body or "")["data"]["arguments"] is None for row in cancelled)


def test_a_quarantined_run_is_told(program: Program, office: Office) -> None:
    program.subscribe(events=["run.quarantined"])
    run = office.start()
    Run.objects.filter(pk=run).update(status="quarantined")
    send_due()
    assert [event["data"]["status"] for event in program.events] == ["quarantined"]


def test_the_beginning_of_an_answer_is_kept(program: Program, office: Office) -> None:
    program.subscribe(events=["run.started"])
    program.statuses, program.answer = [500, 204], b"<b>\x00\xff" + b"x" * 2000
    office.start()
    send_due()
    [sent] = program.api.get(f"{program.path}/messages").json()
    assert sent["answer_body"] == "<b>\\0\ufffd" + "x" * (messages.MAX_ANSWER_BODY - 5)
    pass_time()
    send_due()
    [sent] = program.api.get(f"{program.path}/messages").json()
    assert (sent["answer"], sent["answer_body"]) == ("204", "")


def test_an_event_of_a_transaction_that_fails_is_not_told(program: Program, office: Office) -> None:
    program.subscribe()
    with suppress(ZeroDivisionError), transaction.atomic():
        office.start(advanced=False)
        assert OutboxMessage.objects.exists()
        raise ZeroDivisionError
    assert not OutboxMessage.objects.exists()


def test_events_of_one_run_wait_for_the_first_and_no_others_do(
    program: Program, office: Office
) -> None:
    program.subscribe()
    program.statuses = [500]
    office.start()
    other = office.start()
    send_due()
    assert program.types == ["run.started"] * 2 + ["run.waiting", "approval.requested"]
    assert {event["data"]["run"] for event in program.events[1:]} == {str(other)}
    pass_time()
    send_due()
    assert program.headers[0]["webhook-id"] == program.headers[4]["webhook-id"]
    assert program.events[0] == program.events[4]
    assert len(program.events) == 7


def test_a_message_is_given_up_after_three_days_and_sent_again(
    program: Program, office: Office
) -> None:
    program.subscribe(events=["run.started"])
    program.statuses = [500]
    office.start()
    message = OutboxMessage.objects.get()
    assert message.occurred_at is not None
    assert message.gives_up_at == message.occurred_at + timedelta(days=3)
    OutboxMessage.objects.update(gives_up_at=clock.read_time() + timedelta(seconds=1))
    send_due()
    [sent] = program.api.get(f"{program.path}/messages").json()
    assert (sent["ending"], sent["answer"], sent["attempts"]) == ("given up", "500", 1)
    assert json.loads(sent["body"]) == program.events[0]
    assert program.act(f"messages/{sent['id']}/retry").status_code == 200
    assert program.act(f"messages/{sent['id']}/retry").status_code == 404
    send_due()
    [sent] = program.api.get(f"{program.path}/messages").json()
    assert (sent["ending"], sent["attempts"], len(program.events)) == ("delivered", 2, 2)


def test_both_secrets_sign_for_a_day(program: Program, office: Office) -> None:
    program.subscribe(events=["run.started"])
    before, after = program.secret, program.act("rotate").json()["secret"]
    for secret in (before, after):
        program.secret = secret
        office.start()
        send_due()
    assert program.headers[0]["webhook-signature"].count("v1,") == 2
    Subscription.objects.update(former_until=clock.read_time())
    office.start()
    send_due()
    assert len(program.events) == 3
    assert program.headers[2]["webhook-signature"].count("v1,") == 1
    for secret in (before, after):
        assert secret.removeprefix("whsec_") not in str(Subscription.objects.values())


def test_a_paused_program_misses_events(program: Program, office: Office) -> None:
    program.subscribe(events=["run.started"])
    office.start()
    assert program.act("pause").json()["paused_at"]
    office.start()
    program.act("test")
    send_due()
    assert program.events == []
    assert program.act("resume").json()["paused_at"] is None
    program.act("test")
    send_due()
    assert program.types == ["subscription.test"]


def test_a_deleted_subscription_is_told_nothing(program: Program, office: Office) -> None:
    program.subscribe()
    office.start()
    assert program.act("delete").status_code == 200
    office.start()
    send_due()
    assert program.events == []
    assert program.act("rotate").status_code == 404
    assert program.api.get("/subscriptions").json() == []


@pytest.mark.parametrize(
    ("terms", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "\x00"}, "name"),
        ({"name": "x" * 101}, "name"),
        ({"url": "http://example.com/"}, "url"),
        ({"url": "https://169.254.169.254/latest"}, "url"),
        ({"events": []}, "events"),
        ({"agent": "\ud800"}, "agent"),
        ({"risk": "huge"}, "risk"),
    ],
)
def test_wrong_terms_are_refused(admin_api: Caller, terms: dict[str, Any], field: str) -> None:
    body = {"name": "Bot", "url": "https://example.com/", "events": ["run.started"], **terms}
    assert field_of(admin_api.post("/subscriptions", body)) == (422, field)


def test_there_are_at_most_fifty(admin_api: Caller) -> None:
    body = {"name": "Bot", "url": "https://example.com/", "events": ["run.started"]}
    for _ in range(subscriptions.MAX_SUBSCRIPTIONS):
        assert admin_api.post("/subscriptions", body).status_code == 200
    assert field_of(admin_api.post("/subscriptions", body)) == (422, "name")


def test_an_admin_does_it_all_on_pages(
    program: Program, admin: Client, office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    shows(admin, "/subscriptions/", "None yet.")
    form = {"name": "<b>Bot", "url": program.url, "events": ["run.started"], "with_arguments": "on"}
    wrong = admin.post("/subscriptions/add/", {**form, "events": ["run.eaten"]})
    has(text_of(wrong, 422), "must be some of", "&lt;b&gt;Bot")
    page = text_of(admin.post("/subscriptions/add/", form))
    program.secret = re.findall("whsec_[A-Za-z0-9+/=]+", html.unescape(page))[0]
    row = Subscription.objects.get()
    assert row.with_arguments
    place = f"/subscriptions/{row.id}/"
    shows(admin, "/subscriptions/", "&lt;b&gt;Bot", place)
    for act in ("test", "pause", "resume"):
        assert admin.post(f"{place}{act}/").status_code == 302
    text_of(admin.post(f"{place}test/", follow=True))
    program.statuses, program.answer = [500], b"<i>no"
    OutboxMessage.objects.filter(ended_at=None).update(gives_up_at=clock.read_time() + NOW)
    send_due()
    shows(
        admin,
        place,
        "given up",
        "answer <bdi>500",
        "&lt;i&gt;no",
        "Retry",
        "dropped",
        hides=["whsec_"],
    )
    message = OutboxMessage.objects.get(ending="given up")
    text_of(admin.post(f"{place}retry/{message.id}/", follow=True))
    send_due()
    shows(admin, place, "delivered", "2 attempts", hides=["Retry"])
    has(text_of(admin.post(f"{place}rotate/")), "shown this once", "whsec_")
    has(text_of(admin.post(f"{place}delete/", follow=True)), "None yet.")
    for path in (place, f"{place}retry/{message.id}/"):
        assert admin.post(path).status_code in (404, 405)
    assert admin.get(place).status_code == 404
    assert f"admin subscribed {row.id}" in caplog.text
    for act in ("test", "pause", "resume", "rotate", "delete"):
        assert f"admin changed the subscription {row.id}: {act}" in caplog.text


def test_the_pages_cost_the_same_for_many(program: Program, admin: Client, office: Office) -> None:
    program.subscribe()
    for _ in range(4):
        office.start()
    place = program.path + "/"
    with queries_at_most(12):
        shows(admin, place, "waiting")
