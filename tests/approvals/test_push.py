"""Browsers get notices by Web Push: from a push service, which reads none of them."""

import json
import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from approvals.models import NoticeChannel, OutboxMessage
from approvals.notices import transports
from runtime.errors import InvalidInput
from runtime.keyring import files, purposes
from tests.support import seeds
from tests.support.notices import hears, look
from tests.support.office import reseal
from tests.support.push_service import PushService, decode, decrypt, encode, serving_push

pytestmark = pytest.mark.django_db


@pytest.fixture
def service(settings: Any) -> Iterator[PushService]:
    settings.SIGNOFF_LOOPBACK_WEBHOOKS = True
    settings.PUBLIC_URL = "https://desk.example"
    with serving_push() as service:
        yield service


@pytest.fixture
def bea(service: PushService) -> Any:
    """Bea reviews, and her browser is told of everything. The first notice has arrived."""
    actor = seeds.person("bea", *seeds.GROUPS["bea"])
    hears("bea", json.dumps(service.subscription), kind="push")
    look()
    [first] = service.messages
    assert first["title"] == "Push is on"
    service.messages.clear()
    return actor


@pytest.mark.usefixtures("bea")
def test_a_browser_is_told_of_a_request_and_opens_its_page(service: PushService) -> None:
    approval = seeds.pending()
    look()
    [message] = service.messages
    assert message["title"] == "1 request waits for you, urgent"
    assert message["path"] == f"/a/{approval.id}/"
    assert "://" not in message["text"]


@pytest.mark.usefixtures("bea")
def test_several_requests_are_one_message_that_opens_the_inbox(service: PushService) -> None:
    seeds.pending(), seeds.pending()
    look()
    [message] = service.messages
    assert (message["title"], message["path"]) == (
        "2 requests wait for you, 2 of them urgent",
        "/inbox/",
    )


@pytest.mark.usefixtures("bea")
def test_a_long_text_in_any_script_fits_into_one_message(service: PushService) -> None:
    reseal([seeds.pending() for _ in range(8)], sentence="給新人四級權限😀" * 30)
    look()
    [message] = service.messages
    assert message["text"].startswith("High risk: 給新人")


@pytest.mark.usefixtures("bea")
def test_an_attempt_without_an_answer_is_repeated_under_one_topic(service: PushService) -> None:
    seeds.pending()
    service.answers = [503]
    look()
    assert service.messages == []
    look()
    look()
    assert len(service.messages) == 1
    assert service.topics[-1] == service.messages[0]["tag"]


@pytest.mark.usefixtures("bea")
@pytest.mark.parametrize("answer", transports.GONE)
def test_a_browser_that_unsubscribed_is_forgotten(service: PushService, answer: int) -> None:
    seeds.pending()
    service.answers = [answer]
    look()
    assert not NoticeChannel.objects.exists()
    look()
    assert not OutboxMessage.objects.filter(ended_at=None, kind="channel").exists()


@pytest.mark.usefixtures("bea")
def test_it_gets_messages_after_a_rotation_while_the_key_is_in_the_ring(
    service: PushService,
) -> None:
    files.rotate(purposes.SECRETS)
    assert transports.push_key() != service.trusts
    seeds.pending()
    look()
    assert len(service.messages) == 1


@pytest.mark.parametrize(
    ("endpoint", "keys"),
    [
        ("http://10.0.0.1/x", {}),
        ("https://169.254.169.254/", {}),
        (7, {}),
        (None, None),
        (None, {"p256dh": "AAAA"}),
        (None, {"p256dh": encode(b"\x04" + bytes(64))}),
        (None, {"auth": encode(bytes(8))}),
    ],
)
def test_what_is_no_subscription_is_refused(
    service: PushService, endpoint: object, keys: dict[str, str] | None
) -> None:
    subscription = service.subscription
    subscription["endpoint"] = endpoint or subscription["endpoint"]
    subscription["keys"] = {} if keys is None else subscription["keys"] | keys
    for text in (json.dumps(subscription), "[" * 5000, "7", "", '"x"'):
        with pytest.raises(InvalidInput) as refusal:
            transports.TRANSPORTS["push"].check(text, uuid4())
        assert refusal.value.field == "address"


def test_the_browser_of_these_tests_reads_the_example_of_the_standard() -> None:
    """RFC 8291, section 5 and appendix A."""
    browser = ec.derive_private_key(
        int.from_bytes(decode("q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94")), ec.SECP256R1()
    )
    body = decode(
        "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3"
        "jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
    )
    text = b"When I grow up, I want to be a watermelon"
    assert decrypt(body, browser, decode("BTBZMqHH6r4Tts7J_aSIgg")) == text


@pytest.mark.usefixtures("bea")
def test_a_token_ends_by_the_clock_of_the_database(
    service: PushService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: 0.0)  # the clock of this machine is wrong
    seeds.pending()
    look()
    assert len(service.messages) == 1


@pytest.mark.usefixtures("bea")
def test_neither_address_nor_keys_of_a_browser_are_stored_in_clear(service: PushService) -> None:
    stored = json.dumps(NoticeChannel.objects.get().address)
    assert "/browser" not in stored
    assert not any(value in stored for value in service.subscription["keys"].values())
