"""Deliveries become events of their trigger once; secrets are sealed; acts of people on webhooks."""

import hashlib
import hmac
import json
import logging
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import pytest

from approvals.rules.policy import Group
from runtime.control.external_events import deliver
from runtime.core.values.limits import MAX_DELIVERY
from runtime.errors import InvalidInput, NoSuchTrigger, NoSuchWebhook, NotVerified, Tampered
from runtime.models import Occurrence, ReceivedEvent, Run, TriggerAct, TriggerWebhook
from runtime.store.tables.trigger_rows import TriggerKind
from runtime.triggers import changes, listing, webhooks
from runtime.triggers.webhooks import PAUSED, REPEAT_SECONDS, REPEATED, Receipt, receive
from tests.support import seeds
from tests.support.api_client import Caller
from tests.support.engine import ADA, events
from tests.support.office import BEA
from tests.support.seeds import Cast
from tests.triggers.events.conftest import DATA, HOOK, SAID, Desk, told

BODY = json.dumps(DATA).encode()


def signed(secret: str, body: bytes = BODY) -> dict[str, str]:
    mac = hmac.digest(secret.encode(), body, hashlib.sha256).hex()
    return {"x-hub-signature-256": f"sha256={mac}", "x-github-event": "hired"}


def test_a_delivery_starts_one_run_of_the_owner(desk: Desk) -> None:
    made, other = desk.make(), desk.make(name="Same event")
    hook = webhooks.make(id=made, scheme="github", actor=ADA)
    first = receive(hook.address, signed(hook.secret), BODY)
    again = receive(hook.address, {**signed(hook.secret), "x-github-delivery": "other"}, BODY)
    assert ((first.new, again.new), again.id) == ((True, False), first.id)
    desk.sweep()
    assert told(made) == [(first.id, "started", "")]
    assert told(other) == []
    run = Run.objects.get()
    assert (run.requester, events(run.id)[0]["makers"]) == ("ada", [])
    assert ReceivedEvent.objects.get().subject == "hired"


def test_no_sent_event_keeps_a_delivery_out(desk: Desk) -> None:
    made = desk.make(name="Hook")
    hook = webhooks.make(id=made, scheme="github", actor=ADA)
    changes.change(TriggerKind.EVENT, id=made, sent={**SAID, "event": "hooked"}, actor=ADA)
    key = f"sha256:{hashlib.sha256(BODY).hexdigest()}"
    for source, name in ((f"webhook:{made}", key), ("", json.dumps(["webhook", str(made), key]))):
        deliver(id=name, source=source, name="hired", data={}, actor=HOOK)
    assert receive(hook.address, signed(hook.secret), BODY).new
    desk.sweep()
    assert told(made) == [(key, "started", "")]


def test_what_does_not_verify_is_counted_and_starts_nothing(desk: Desk) -> None:
    made = desk.make()
    hook = webhooks.make(id=made, scheme="github", actor=ADA)
    for headers in ({}, signed("another secret")):
        with pytest.raises(NotVerified):
            receive(hook.address, headers, BODY)
    with pytest.raises(NoSuchWebhook):
        receive("x" * 32, signed(hook.secret), BODY)
    shown = listing.read_one(TriggerKind.EVENT, made, ADA).webhook
    assert shown is not None
    assert (shown.refused, shown.refused_why) == (2, "its signature does not verify")
    assert not Occurrence.objects.exists()


@pytest.mark.parametrize(
    ("scheme", "headers", "body", "id"),
    [
        ("header", {"idempotency-key": "k-1"}, {}, "k-1"),
        ("header", {}, {}, f"sha256:{hashlib.sha256(b'{}').hexdigest()}"),
        ("slack", {}, {"event_id": "Ev1"}, "Ev1"),
        ("stripe", {}, {"id": "evt_1"}, "evt_1"),
        ("standard", {"webhook-id": "msg_1"}, {}, "msg_1"),
    ],
)
def test_the_id_of_a_delivery_is_one_that_the_signature_covers(
    desk: Desk,
    monkeypatch: pytest.MonkeyPatch,
    scheme: str,
    headers: dict[str, str],
    body: dict[str, Any],
    id: str,
) -> None:
    monkeypatch.setattr("runtime.triggers.signatures.verify", lambda *_: None)
    hook = webhooks.make(id=desk.make(), scheme=scheme, header="x-token", actor=ADA)
    assert receive(hook.address, headers, json.dumps(body).encode()).id == id


def test_an_equal_body_without_an_id_is_the_same_delivery_for_minutes(desk: Desk) -> None:
    """Its event says so, and is kept for a retry."""
    trigger = desk.make()
    hook = webhooks.make(id=trigger, scheme="header", header="x-token", actor=ADA)
    answers = []
    for seconds in (REPEAT_SECONDS // 2, REPEAT_SECONDS - 1, 1, REPEAT_SECONDS - 1):
        desk.at += timedelta(seconds=seconds)
        answers.append(receive(hook.address, {"x-token": hook.secret}, BODY))
    assert [(receipt.new, receipt.skipped) for receipt in answers] == [
        (True, ""),
        (True, REPEATED),
    ] * 2
    desk.sweep()
    assert [event[1:] for event in told(trigger)] == [("started", ""), ("skipped", REPEATED)] * 2
    changes.retry(
        id=trigger, number=Occurrence.objects.filter(reason=REPEATED)[0].number, actor=ADA
    )
    desk.sweep()
    assert [state for _, state, _ in told(trigger)].count("started") == 3


def test_a_number_that_no_journal_keeps_costs_no_delivery(desk: Desk) -> None:
    hook = webhooks.make(id=desk.make(), scheme="header", header="x-token", actor=ADA)
    assert receive(hook.address, {"x-token": hook.secret}, b'{"id": 2868860079149422351}').new
    assert json.loads(ReceivedEvent.objects.get().data) == {"id": "2868860079149422351"}


def test_the_payload_of_a_form_is_read(desk: Desk) -> None:
    trigger = desk.make()
    hook = webhooks.make(id=trigger, scheme="github", actor=ADA)
    body = urlencode({"payload": BODY.decode()}).encode()
    form = {"content-type": "application/x-www-form-urlencoded; charset=utf-8"}
    assert receive(hook.address, signed(hook.secret, body) | form, body).new
    desk.sweep()
    assert [state for _, state, _ in told(trigger)] == ["started"]
    other = b"text=hello"
    with pytest.raises(InvalidInput, match="choose application/json"):
        receive(hook.address, signed(hook.secret, other) | form, other)


def test_slack_checks_the_address_without_an_event(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runtime.triggers.signatures.verify", lambda *_: None)
    hook = webhooks.make(id=desk.make(), scheme="slack", actor=ADA)
    body = b'{"type": "url_verification", "challenge": "c-1"}'
    assert receive(hook.address, {}, body) == Receipt(id="", new=False, challenge="c-1")
    assert not ReceivedEvent.objects.exists()


def test_a_paused_trigger_keeps_deliveries_for_a_retry(desk: Desk) -> None:
    made = desk.make()
    hook = webhooks.make(id=made, scheme="github", actor=ADA)
    changes.pause(TriggerKind.EVENT, id=made, actor=ADA)
    assert receive(hook.address, signed(hook.secret), BODY).new
    changes.resume(TriggerKind.EVENT, id=made, actor=ADA)
    desk.sweep()
    assert told(made)[0][1:] == ("skipped", PAUSED)
    changes.retry(id=made, number=Occurrence.objects.get().number, actor=ADA)
    desk.sweep()
    assert told(made)[0][1:] == ("started", "")


def test_an_ended_trigger_receives_nothing(desk: Desk) -> None:
    made = desk.make()
    hook = webhooks.make(id=made, scheme="github", actor=ADA)
    changes.end(TriggerKind.EVENT, id=made, actor=ADA)
    with pytest.raises(NoSuchWebhook):
        receive(hook.address, signed(hook.secret), BODY)
    assert told(made) == []


def test_a_secret_is_sealed_and_an_old_address_ends(desk: Desk) -> None:
    made = desk.make()
    dora = seeds.person("dora", Group.ADMINS, Group.REVIEWERS)
    old = webhooks.make(id=made, scheme="github", actor=ADA)
    given = "a secret of the other system"
    new = webhooks.make(id=made, scheme="github", secret=given, actor=dora)
    assert new.secret == given
    stored = " ".join(TriggerAct.objects.values_list("body", flat=True))
    stored += " ".join(TriggerWebhook.objects.values_list("address", flat=True))
    for text in (old.secret, old.address, given, new.address):
        assert text not in stored
    with pytest.raises(NoSuchWebhook):
        receive(old.address, signed(old.secret), BODY)
    receive(new.address, signed(given), BODY)
    desk.sweep()
    assert events(Run.objects.get().id)[0]["makers"] == ["dora"]  # who knows the secret
    TriggerWebhook.objects.update(address=hashlib.sha256(b"mine").hexdigest())
    with pytest.raises(NoSuchWebhook):  # as a program could that writes to Postgres
        receive("mine", signed(given), BODY)
    webhooks.remove(id=made, actor=ADA)
    with pytest.raises(NoSuchWebhook):
        receive(new.address, signed(given), BODY)
    assert [one.act for one in listing.read_one(TriggerKind.EVENT, made, ADA).acts][:2] == [
        "webhook removed",
        "webhook made",
    ]
    TriggerAct.objects.update(act="made")
    with pytest.raises(Tampered):
        webhooks.make(id=made, scheme="github", actor=ADA)


def test_a_wrong_field_is_named(desk: Desk, subtests: pytest.Subtests) -> None:
    made = desk.make()
    for sent, why in (
        ({"scheme": "md5"}, "scheme: must be one of standard, github, stripe, slack, header"),
        ({"scheme": "header"}, "header: must have 1 to 60 letters"),
        ({"scheme": "header", "header": "a:b"}, "header: must have 1 to 60 letters"),
        ({"scheme": "github", "secret": "short"}, "secret: must be text of 16 to 200 characters"),
        ({"scheme": "standard", "secret": "x" * 20}, "secret: must be whsec_ and base64"),
    ):
        with subtests.test(why), pytest.raises(InvalidInput) as caught:
            webhooks.make(id=made, actor=ADA, **sent)
        assert f"{caught.value.field}: {caught.value.detail}".startswith(why)
    with pytest.raises(NoSuchTrigger):
        webhooks.make(id=made, scheme="github", actor=seeds.person("otto", Group.REQUESTERS))
    with pytest.raises(Exception, match="runs:start"):
        webhooks.make(id=made, scheme="github", actor=BEA)


def test_the_address_answers_without_a_token(
    desk: Desk, cast: Cast, caplog: pytest.LogCaptureFixture
) -> None:
    """It says why a delivery is refused, and no log has the address or the secret."""
    caplog.set_level(logging.DEBUG)
    api = Caller(cast.ada)
    made = desk.make()
    sent = {"scheme": "header", "header": "X-Token"}
    hook = api.post(f"/triggers/{made}/webhook", sent).json()
    path = hook["path"].removeprefix("/api/v1")
    api.client.defaults.pop("HTTP_AUTHORIZATION", None)
    api.client.headers = {}
    token = {"X-Token": hook["secret"]}

    def post(text: str, **headers: str) -> tuple[int, dict[str, Any]]:
        answer = api.client.post(
            f"/api/v1{path}", text, content_type="application/json", headers=headers
        )
        return answer.status_code, answer.json()

    assert post("{}", **token)[0] == 202
    status, answer = post("{}", **token)
    assert (status, answer["skipped"]) == (202, REPEATED)
    assert [post("{}", **token, **{"Idempotency-Key": "k"})[0] for _ in range(2)] == [202, 200]
    for (status, said), code, words in (
        (post("{}"), "not_verified", "does not verify"),
        (post("[]", **token), "invalid", "must be an object"),
        (post("{", **token), "invalid", "must be JSON"),
        (post('{"a": NaN}', **token), "invalid", ""),
        (post(" " * (MAX_DELIVERY + 1), **token), "too_large", f"at most {MAX_DELIVERY} bytes"),
    ):
        assert (said["code"], words in said["detail"]) == (code, True), said
        assert status == {"not_verified": 401, "too_large": 413}.get(code, 422)
    logged = caplog.text
    assert path.rpartition("/")[2] not in logged
    assert hook["secret"] not in logged
