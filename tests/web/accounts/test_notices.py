"""The page on which a person chooses how they hear, and links in notices that decide nothing."""

import json
import re
from http.server import BaseHTTPRequestHandler
from ipaddress import ip_network
from typing import Any

import pytest
from django.db.models import F
from django.test import Client

from approvals.models import Approval, AuditEntry, LoginFailures, NoticeChannel, OutboxMessage
from approvals.notices import channels
from approvals.people import login
from config.env.environment import ROOT
from config.settings import LOGIN_COOLOFF
from tests.support import seeds
from tests.support.loopback import respond, serving
from tests.support.notices import hears, look, send_notices
from tests.support.pages import has, shows, text_of

PAGE = "/account/notices/"
_GUIDE = (ROOT / "docs/how-to/notify-people.md").read_text("utf-8")
ADDRESSES = re.findall("```\n(.*?)```", _GUIDE, re.DOTALL)[0].split()
MAIL = {"kind": "mail", "address": "bea@example.com", "from_risk": "high", "shows": "title"}


def test_a_person_adds_changes_and_removes_a_channel(bea: Client) -> None:
    shows(bea, PAGE, "None yet", "Add a channel")
    wrong = bea.post(f"{PAGE}add/", {**MAIL, "address": "bea at home"})
    has(text_of(wrong, 422), "Address</bdi> must be a mail address")
    assert 'value="bea at home"' in wrong.content.decode()
    bea.post(f"{PAGE}add/", {**MAIL, "runs": "on"})
    shows(bea, PAGE, "bea@example.com", "A first notice follows within a minute")
    [channel] = channels.find_channels("bea")
    assert (channel.from_risk, channel.runs, channel.shows) == ("high", True, "title")
    bea.post(f"{PAGE}{channel.id}/", {"from_risk": "low", "shows": "arguments"})
    [channel] = channels.find_channels("bea")
    assert (channel.from_risk, channel.runs, channel.shows) == ("low", False, "arguments")
    wrong = bea.post(f"{PAGE}{channel.id}/", {"from_risk": "some", "shows": "title"})
    has(text_of(wrong, 422), "must be one of")
    has(text_of(bea.post(f"{PAGE}{channel.id}/remove/", follow=True)), "Removed", "None yet")
    assert not NoticeChannel.objects.exists()
    assert not OutboxMessage.objects.filter(ended_at=None).exists()


def test_a_person_has_few_first_notices_at_a_time(bea: Client) -> None:
    hears("bea", "bea@example.com")
    [channel] = channels.find_channels("bea")
    test = f"{PAGE}{channel.id}/test/"
    for _ in range(login.MAX_FIRST_NOTICES - 1):
        has(text_of(bea.post(test, follow=True)), "A test is on its way")
    has(text_of(bea.post(test, follow=True)), "The address gets no first notice or test now")
    has(text_of(bea.post(f"{PAGE}add/", MAIL), 422), "Address</bdi> gets no first notice")
    bea.post(f"{PAGE}{channel.id}/", {"from_risk": "high", "shows": "title"})
    [channel] = channels.find_channels("bea")
    assert channel.from_risk == "low"
    hears("cyril", "cyril@example.com")
    LoginFailures.objects.update(at=F("at") - LOGIN_COOLOFF)
    has(text_of(bea.post(test, follow=True)), "A test is on its way")


def test_a_person_chooses_hours(bea: Client) -> None:
    times = {"zone": "Europe/Berlin", "quiet_from": "22:00", "quiet_until": "07:30"}
    bea.post(f"{PAGE}hours/", {**times, "urgent_at_night": "on", "digest": "15, 9"})
    shows(bea, PAGE, 'value="22:00"', 'value="07:30"', 'value="9, 15"', "urgent_at_night")
    chosen = channels.find_hours("bea")
    assert (chosen.zone, chosen.urgent_at_night, chosen.digest) == ("Europe/Berlin", True, [9, 15])
    for field, text in (
        ("digest", "25"),
        ("digest", "noon"),
        ("quiet_until", ""),
        ("quiet_until", "22:00"),
        ("quiet_from", "late"),
        ("zone", "Mars"),
    ):
        wrong = bea.post(f"{PAGE}hours/", {**times, field: text})
        has(text_of(wrong, 422), "must be")


def test_a_test_goes_to_an_apprise_url_whose_secret_is_sealed(bea: Client, settings: Any) -> None:
    settings.SIGNOFF_LOOPBACK_WEBHOOKS = True
    bodies = list[dict[str, str]]()

    def take(request: BaseHTTPRequestHandler, body: bytes) -> None:
        bodies.append(json.loads(body))
        respond(request, 204 if len(bodies) > 1 else 503)

    with serving(take) as url:
        host = url.removeprefix("http://").partition("/")[0]
        address = f"json://bea:s3cret@{host}/hook"
        bea.post(f"{PAGE}add/", {**MAIL, "kind": "apprise", "address": address})
        send_notices()
        shows(bea, PAGE, f"json://{host}", "The last attempt failed: 503")
        look()
        [channel] = channels.find_channels("bea")
        assert (channel.problem, bool(channel.confirmed_at)) == ("", True)
        bea.post(f"{PAGE}{channel.id}/test/")
        send_notices()
    titles = [body["title"] for body in bodies]
    assert titles == ["Apprise is on"] * 3
    stored = json.dumps(NoticeChannel.objects.get().address)
    assert "s3cret" not in stored + bea.get(PAGE).content.decode()


@pytest.mark.parametrize(
    "address",
    [
        "file:///etc/passwd",
        "exec://rm",
        "syslog://",
        "dbus://",
        "windows://",
        "sendmail://bea@example.com",
        "mailto://bea:x@example.com",
        "https://example.com/",
        "json://",
        "jsons://host/?template=/etc/passwd",
        "jsons://host/?attach=/etc/passwd",
        "workflows://host/abc",
        "",
    ],
)
def test_an_apprise_url_that_is_no_service_over_https_is_refused(bea: Client, address: str) -> None:
    answer = bea.post(f"{PAGE}add/", {**MAIL, "kind": "apprise", "address": address})
    has(text_of(answer, 422), "Address</bdi> ")
    assert not NoticeChannel.objects.exists()


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("jsons://169.254.169.254/latest", "must be at a public address"),
        ("jsons://10.0.0.1/", "must be at a public address"),
        ("json://example.com/", "must begin with https"),
        ("jsons://localhost/", "not a public address"),
        ("jsons://example.com/?method=GET", "cannot be used"),
    ],
)
def test_a_notice_goes_to_public_addresses_over_https(
    bea: Client, address: str, problem: str, settings: Any
) -> None:
    settings.SIGNOFF_INTERNAL_WEBHOOKS = (ip_network("10.0.0.0/8"),)  # of admins' webhooks alone
    hears("bea", address, kind="apprise")
    send_notices()
    shows(bea, PAGE, problem)


@pytest.mark.parametrize("address", ADDRESSES, ids=lambda text: text.partition(":")[0])
def test_the_addresses_of_the_guide_are_channels(bea: Client, address: str) -> None:
    bea.post(f"{PAGE}add/", {**MAIL, "kind": "apprise", "address": address})
    [channel] = channels.find_channels("bea")
    assert channel.address["address"].partition(":")[0] == address.partition(":")[0].replace(
        "https", "workflow"
    )
    stored = json.dumps(NoticeChannel.objects.get().address)
    parts = re.split(r"[/@:=]", address.replace("/path", ""))
    assert parts[-1] not in stored or parts[-1] == "receiver.example"
    assert "password" not in stored


@pytest.mark.usefixtures("by_hand")
def test_a_scanner_that_follows_every_link_of_a_mail_changes_nothing(
    bea: Client, settings: Any, mailoutbox: list[Any]
) -> None:
    settings.PUBLIC_URL = "http://testserver"
    hears("bea", "bea@example.com")
    look()
    approval = seeds.pending()
    look()
    links = re.findall(r"http://testserver(\S+)", mailoutbox[-1].body)
    assert f"/a/{approval.pk}/" in links
    before = (list(Approval.objects.values()), AuditEntry.objects.count())
    for link in links:
        for client in (Client(enforce_csrf_checks=True), bea):
            client.handler.enforce_csrf_checks = True
            for method in (client.get, client.head, client.post):
                assert method(link).status_code in (200, 302, 403, 405)
    assert (list(Approval.objects.values()), AuditEntry.objects.count()) == before
