"""Deliveries become events of their trigger once; secrets are sealed; acts of people on webhooks."""

import hashlib
import hmac
import json
import logging
from datetime import UTC, datetime, timedelta
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
from runtime.triggers.signatures import InvalidSignature, Scheme, is_key, verify
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
    changes.end_trigger(TriggerKind.EVENT, id=made, actor=ADA)
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


# Signatures


AT = datetime.fromtimestamp(1614265330, UTC)
STANDARD = {
    "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "webhook-timestamp": "1614265330",
    "webhook-signature": "v1,bm9uZQ== v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
}
SLACK_BODY = (
    b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V"
    b"&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text="
    b"&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGl"
    b"gcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
)
# Scheme, secret, headers, body, time: the first three are those of their specifications.
EXAMPLES = {
    "standard": ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", STANDARD, b'{"test": 2432232314}', AT),
    "github": (
        "It's a Secret to Everybody",
        {
            "x-hub-signature-256": "sha256="
            "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
        },
        b"Hello, World!",
        AT,
    ),
    "slack": (
        "8f742231b10e8888abcd99yyyzzz85a5",
        {
            "x-slack-request-timestamp": "1531420618",
            "x-slack-signature": "v0="
            "a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
        },
        SLACK_BODY,
        datetime.fromtimestamp(1531420618, UTC),
    ),
    "stripe": (
        "whsec_test_secret_of_stripe",
        {
            "stripe-signature": "t=1614265330,v0=00,v1=00,v1="
            "2ef382c685b704c7297b20962e1b533478c94e4ccde705cb94b5ab32f1ce9e0d"
        },
        b'{"id": "evt_1"}',
        AT,
    ),
    "header": ("a secret of many characters", {"x-token": "a secret of many characters"}, b"", AT),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_verifies_and_nothing_like_it(name: str) -> None:
    secret, headers, body, at = EXAMPLES[name]
    scheme = Scheme(name)

    def check(**other: object) -> None:
        given = {"secret": secret, "headers": headers, "body": body, "now": at, **other}
        verify(scheme, header="x-token", **given)  # type: ignore[arg-type]

    for seconds in (-300, 0, 300):
        check(now=at + timedelta(seconds=seconds))
    wrong: list[dict[str, object]] = [
        {"headers": {}},
        {"secret": "d2hhdCBpcyBub3QgdGhlIHNlY3JldA=="},
    ]
    wrong += [{"headers": {**headers, one: headers[one][:-3] + "000"}} for one in headers]
    for value in ("\udcff é,=t", "²", "9" * 400):  # these are digits in Python
        wrong += [{"headers": {**headers, one: value}} for one in headers]
    if name != "header":
        wrong.append({"body": body + b" "})
    if name not in ("header", "github"):
        wrong += [{"now": at + timedelta(seconds=seconds)} for seconds in (-301, 301)]
    for other in wrong:
        with pytest.raises(InvalidSignature):
            check(**other)


def test_only_a_few_signatures_of_a_header_are_read() -> None:
    secret, headers, body, at = EXAMPLES["standard"]
    many = {**headers, "webhook-signature": "v1,bm9uZQ== " * 11 + headers["webhook-signature"]}
    with pytest.raises(InvalidSignature):
        verify(Scheme.STANDARD, secret, "", many, body, at)


@pytest.mark.parametrize(
    ("scheme", "secret", "fits"),
    [
        ("standard", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", True),
        ("standard", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw!", False),
        ("standard", "whsec_c2hvcnQ=", False),
        ("github", "It's a Secret to Everybody", True),
        ("github", "x" * 15, False),
        ("github", "x" * 16, True),
        ("github", "It's a Secret\nto Everybody", False),
        ("slack", "x" * 200, True),
        ("slack", "x" * 201, False),
    ],
)
def test_a_secret_has_a_shape(scheme: str, secret: str, fits: bool) -> None:
    assert is_key(Scheme(scheme), secret) is fits
