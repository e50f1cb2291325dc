"""Instances are told by webhook that their requests have ended: once each, signed, until they take it."""

from datetime import timedelta
from http.server import BaseHTTPRequestHandler
from typing import Any
from uuid import uuid4

import pytest
from django.test import override_settings

from approvals import clock
from approvals.decisions.decide import undo
from approvals.governance.allowance_changes import list_arguments
from approvals.models import Instance, InstanceWebhook, OutboxMessage, Token
from approvals.outbox import messages
from runtime.models import Run
from runtime.ports.access import Actor
from tests.approvals.allowances.office import ANY, in_force, reviewers
from tests.support.people import until
from tests.support.threads import aside, together
from tests.web.aap.conftest import BODY, Desk, Door, code
from tests.web.aap.receivers import Hook, listening, pass_time, send_due, serving


def path_of_instance() -> str:
    return f"/instances/{Instance.objects.get().id}"


def test_a_decision_is_told_once(hooked: Door, hook: Hook, desk: Desk) -> None:
    made = hooked.ask()
    send_due()
    assert hook.events == []
    desk.decide(made["id"])
    send_due()
    assert len(hook.events) == 1
    pass_time()
    send_due()
    [event] = hook.events
    assert event == {
        "id": event["id"],
        "type": "request.resolved",
        "instance_id": str(Instance.objects.get().id),
        "request_id": made["id"],
        "created_at": hooked.read(made["id"])["decision"]["decided_at"],
    }
    assert hook.headers[0]["webhook-id"] == event["id"]
    message = OutboxMessage.objects.get()
    assert (message.ending, message.answer, message.attempts) == ("delivered", "204", 1)
    assert message.occurred_at is not None
    assert message.gives_up_at == message.occurred_at + timedelta(hours=168)


def test_each_way_to_end_is_told(hooked: Door, hook: Hook, desk: Desk) -> None:
    denied, cancelled, unseen = hooked.ask(), hooked.ask(), hooked.ask()
    expiring, lost = (hooked.ask({**BODY, "timeout": "1s"}) for _ in range(2))
    desk.decide(denied["id"], "deny", "No")
    desk.advance(cancelled["id"])
    desk.advance(expiring["id"])
    for request in (cancelled, unseen):
        hooked.send("DELETE", f"/requests/{request['id']}")
    until(lambda: hooked.read(lost["id"])["status"] == "expired" or None, "the deadline")
    send_due()
    requests = (denied, cancelled, unseen, expiring, lost)
    assert {event["request_id"] for event in hook.events} == {one["id"] for one in requests}
    assert len(hook.events) == len(requests)
    desk.advance(expiring["id"])
    pass_time()
    send_due()
    assert len(hook.events) == len(requests)


def test_an_allowance_that_passes_the_call_is_told_at_once(
    hooked: Door, hook: Hook, desk: Desk
) -> None:
    first = hooked.ask()
    desk.advance(first["id"])
    reviewers("cora")
    approval = desk.approval(first["id"])
    in_force(approval, limits={argument.name: ANY for argument in list_arguments(approval)})
    passed = hooked.ask()
    desk.advance(passed["id"])
    assert desk.approval(passed["id"]).allowance is not None
    send_due()
    assert [event["request_id"] for event in hook.events] == [passed["id"]]


def test_a_decision_is_told_when_it_can_no_longer_be_undone(
    hooked: Door, hook: Hook, desk: Desk
) -> None:
    made = hooked.ask()
    with override_settings(SIGNOFF_UNDO_SECONDS=60):
        desk.decide(made["id"])
    pass_time()
    send_due()
    assert hook.events == []
    assert OutboxMessage.objects.get().next_at == desk.approval(made["id"]).effective_at
    undo(approval_id=desk.approval(made["id"]).id, actor=Actor(person="bea"))
    pass_time()
    send_due()
    assert hook.events == []
    desk.decide(made["id"], "deny", "No")
    send_due()
    assert len(hook.events) == 1


def test_an_attempt_is_repeated_with_the_same_id_and_body(
    hooked: Door, hook: Hook, desk: Desk
) -> None:
    made = hooked.ask()
    hook.statuses = [500, 302]
    desk.decide(made["id"])
    for attempt in range(3):
        send_due()
        assert len(hook.events) == attempt + 1
        send_due()  # it is not due yet
        assert len(hook.events) == attempt + 1
        pass_time()
    assert hook.events[0] == hook.events[1] == hook.events[2]
    assert {headers["webhook-id"] for headers in hook.headers} == {hook.events[0]["id"]}
    assert OutboxMessage.objects.get().ending == "delivered"


def test_a_sender_that_lost_its_lease_records_nothing(hooked: Door, hook: Hook, desk: Desk) -> None:
    made = hooked.ask()
    desk.decide(made["id"])
    claimed = messages.claim()
    assert claimed is not None
    assert messages.claim() is None
    OutboxMessage.objects.update(leased_until=clock.read_time())
    again = messages.claim()
    assert again is not None
    messages.end_message(claimed, OutboxMessage.EndState.DROPPED)
    assert not messages.begin(claimed, None)
    assert OutboxMessage.objects.get().ended_at is None
    assert messages.begin(again, None)


def test_a_webhook_is_verified_first(hook: Hook, provisioner: Door) -> None:
    other = {**hook.delivery, "registration_id": str(uuid4())}
    refused = provisioner.send("POST", "/instances", {"delivery": other}, "k")
    assert code(refused) == (422, "webhook_verification_failed")
    assert not Instance.objects.exists()
    made = provisioner.send("POST", "/instances", {"delivery": hook.delivery}, "k")
    assert made.status_code == 201
    told = made.json()["instance"]["delivery"]
    assert told == {name: hook.delivery[name] for name in ("type", "url", "registration_id")}
    again = provisioner.send("POST", "/instances", {"delivery": hook.delivery}, "k")
    assert (again.status_code, again.json()) == (200, made.json())
    assert provisioner.send("GET", path_of_instance()).json()["instance"]["delivery"] == told
    key = hook.secret.removeprefix("whsec_")
    assert key not in str(InstanceWebhook.objects.values())
    assert key not in str(Instance.objects.values())


@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_a_token_that_is_revoked_during_the_verification_does_nothing(
    hook: Hook, provisioner: Door, bot: Door, method: str
) -> None:
    def answer(request: BaseHTTPRequestHandler, body: bytes) -> None:
        aside(lambda: Token.objects.update(revoked_at=clock.read_time()))
        hook.take(request, body)

    path = "/instances" if method == "POST" else path_of_instance()
    with serving(answer) as hook.url:
        refused = provisioner.send(method, path, {"delivery": hook.delivery}, "k")
    assert code(refused)[0] == 403
    assert hook.verifications == 1
    assert (Instance.objects.count(), InstanceWebhook.objects.count()) == (1, 0)


def test_two_provisionings_with_one_key_verify_once(hook: Hook, provisioner: Door) -> None:
    answers: list[Any] = []
    body = {"delivery": hook.delivery}
    together([lambda: answers.append(provisioner.send("POST", "/instances", body, "k"))] * 3)
    assert sorted(answer.status_code for answer in answers) == [200, 200, 201]
    assert len({answer.json()["credential"]["token"] for answer in answers}) == 1
    assert hook.verifications == 1


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        ({"type": "email"}, "unsupported_delivery_type"),
        ({"url": "https://user@example.com/"}, "invalid_webhook_url"),
        ({"url": "https://example.com/#x"}, "invalid_webhook_url"),
        ({"url": "http://example.com/"}, "invalid_webhook_url"),
        ({"url": "https://169.254.169.254/latest"}, "invalid_webhook_url"),
        ({"url": "https://[::ffff:10.0.0.1]/"}, "invalid_webhook_url"),
        ({"url": "https://127.0.0.1/"}, "invalid_webhook_url"),
        ({"url": "https://exa mple.com/"}, "invalid_webhook_url"),
        ({"url": "https://a\\@b/"}, "invalid_webhook_url"),
        ({"url": 7}, "invalid_webhook_url"),
        ({"registration_id": "x"}, "invalid_field"),
        ({"signing_secret": "whsec_AAAA"}, "invalid_field"),
        ({"signing_secret": "A" * 43 + "="}, "invalid_field"),
        ({"extra": 1}, "unknown_field"),
    ],
)
def test_a_wrong_delivery_is_refused(
    hook: Hook, provisioner: Door, settings: Any, change: dict[str, Any], refusal: str
) -> None:
    settings.SIGNOFF_LOOPBACK_WEBHOOKS = False
    body = {"delivery": {**hook.delivery, "url": "https://example.com/", **change}}
    assert code(provisioner.send("POST", "/instances", body, "k")) == (400, refusal)
    assert not Instance.objects.exists()


def test_a_change_of_the_webhook_is_made_once(hooked: Door, hook: Hook, provisioner: Door) -> None:
    path = path_of_instance()
    with listening() as other:
        moved = provisioner.send("PATCH", path, {"delivery": other.delivery}, "a")
        assert moved.json()["instance"]["delivery"]["url"] == other.url
        removed = provisioner.send("PATCH", path, {"delivery": None}, "b")
        assert "delivery" not in removed.json()["instance"]
        again = provisioner.send("PATCH", path, {"delivery": other.delivery}, "a")
        assert (again.status_code, again.json()) == (200, moved.json())
        conflict = provisioner.send("PATCH", path, {"delivery": hook.delivery}, "a")
        assert code(conflict) == (409, "idempotency_conflict")
    assert "delivery" not in provisioner.send("GET", path).json()["instance"]
    refused = provisioner.send("PATCH", path, {"delivery": other.delivery}, "c")  # it is closed
    assert code(refused) == (422, "webhook_verification_failed")


def test_another_webhook_gets_what_was_not_delivered(
    hooked: Door, hook: Hook, provisioner: Door, desk: Desk
) -> None:
    told, untold, waiting = hooked.ask(), hooked.ask(), hooked.ask()
    desk.decide(told["id"])
    send_due()
    hook.statuses = [500]
    desk.decide(untold["id"])
    send_due()
    before = OutboxMessage.objects.get(subject=untold["id"])
    with listening() as other:
        provisioner.send("PATCH", path_of_instance(), {"delivery": other.delivery}, "a")
        send_due()
        assert other.events == [hook.events[-1]]
        after = OutboxMessage.objects.get(subject=untold["id"])
        assert after.gives_up_at == before.gives_up_at
        desk.decide(waiting["id"])
        send_due()
        assert other.events[-1]["request_id"] == waiting["id"]
    assert len(hook.events) == 2


def test_a_new_webhook_is_told_of_what_waits(
    bot: Door, hook: Hook, provisioner: Door, desk: Desk
) -> None:
    before, after = bot.ask(), bot.ask()
    desk.decide(before["id"])
    path = path_of_instance()
    for change in ({"delivery": hook.delivery}, {"delivery": None}, {"delivery": hook.delivery}):
        assert provisioner.send("PATCH", path, change, str(uuid4())).status_code == 200
    desk.decide(after["id"])
    send_due()
    assert [event["request_id"] for event in hook.events] == [after["id"]]


@pytest.mark.parametrize("act", ["PATCH", "DELETE"])
def test_a_removed_webhook_is_told_nothing(
    hooked: Door, hook: Hook, provisioner: Door, desk: Desk, act: str
) -> None:
    waiting, decided = hooked.ask(), hooked.ask()
    hook.statuses = [500]
    desk.decide(decided["id"])
    send_due()
    body = {"delivery": None} if act == "PATCH" else None
    assert provisioner.send(act, path_of_instance(), body, "k").status_code in (200, 204)
    if act == "PATCH":
        desk.decide(waiting["id"])
    pass_time()
    send_due()
    assert len(hook.events) == 1
    assert not InstanceWebhook.objects.exists()
    assert not OutboxMessage.objects.filter(ended_at=None).exists()
    assert Run.objects.count() == 2
