"""A request that was changed in the database is shown as tampered with, and cannot be decided."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.test import Client
from django.utils import timezone

from approvals.models import Request
from approvals.requests import snapshot
from tests.support.api_client import Caller
from tests.support.office import Office, reseal

WORDS = "This request was tampered with"

FORGERIES: dict[str, dict[str, Any]] = {
    "arguments": {"args": '{"username": "newhire", "security_level": 1}'},
    "sentence": {"sentence": "Set the privileges of newhire to 1"},
    "risk": {"risk": "low"},
    "requester": {"requester": "cyril"},
    "deadline": {"expires_at": timezone.now()},
    "time": {"created_at": timezone.now()},
    "seal": {"seal": "00"},
    "seal of other letters": {"seal": "é"},
    "key of the seal": {"seal_key_id": "none"},
    "no JSON": {"args": "{", "schema": "["},
    "arguments that are removed": {"args": "{}", "removed_at": timezone.now()},
    "path": {"path": {"a": 1}},
    "digest": {"request_digest": "sha256:0"},
    "origin that is no list": {"origin": 5},
    "origin of other things": {"origin": [5, {"a": 1}]},
    "people who may not decide": {"excluded": []},
    "kind": {"kind": "nothing"},
    "effect": {"effect": "nothing"},
    "schema of a wrong type": {"schema": "5", "args": "5"},
    "call": {"call": "nothing"},
    "frame": {"frame": "nothing"},
    "path without an end": {"path": []},
    "path of numbers": {"path": [1, 2]},
}


@pytest.fixture
def request_(office: Office, suspended: UUID) -> Request:
    return office.request(suspended)


@pytest.fixture(params=FORGERIES)
def forged(request: pytest.FixtureRequest, request_: Request) -> Request:
    Request.objects.filter(pk=request_.pk).update(**FORGERIES[request.param])
    return Request.objects.get(pk=request_.pk)


def test_a_forged_request_is_shown_as_tampered_with(bea: Client, forged: Request) -> None:
    page = bea.get(f"/a/{forged.id}/")
    assert page.status_code == 200
    assert WORDS in page.content.decode()
    assert f"/a/{forged.id}/approve/" not in page.content.decode()


def test_lists_name_a_forged_request(bea: Client, bea_api: Caller, forged: Request) -> None:
    assert "Tampered with: " in bea.get("/inbox/").content.decode()
    (found,) = bea_api.get("/approvals").json()["items"]
    assert found["tampered"]
    assert bea_api.get(f"/approvals/{forged.id}").json()["tampered"] == found["tampered"]


def test_a_forged_request_cannot_be_decided(bea: Client, bea_api: Caller, forged: Request) -> None:
    for verdict in ("approve", "deny"):
        body = {"verdict": verdict, "digest": forged.request_digest, "reason": "because"}
        answer = bea_api.post(f"/approvals/{forged.id}/decision", body)
        assert (answer.status_code, answer.json()["code"]) == (409, "unverified")
        page = bea.post(f"/a/{forged.id}/{verdict}/", body)
        assert page.status_code == 409
        assert WORDS in page.content.decode()
    assert Request.objects.get(pk=forged.pk).status == "pending"


def test_one_forged_request_leaves_the_others_of_the_list(
    bea: Client, office: Office, forged: Request
) -> None:
    other = office.request(office.start())
    page = bea.get("/inbox/").content.decode()
    assert f"/a/{other.id}/" in page
    assert f"/a/{forged.id}/" in page


def test_a_request_of_a_release_that_sealed_no_time_is_decided(
    bea: Client, office: Office, request_: Request
) -> None:
    reseal([request_], nonce="0" * 32, created_at=request_.created_at - timedelta(days=1))
    assert WORDS not in bea.get(f"/a/{request_.id}/").content.decode()
    office.approve(request_.run_id)
    assert Request.objects.get(pk=request_.pk).status == "approved"
    assert [call.tool for call in office.effects.calls][-1] == "send_welcome_mail"


def test_the_time_cannot_be_taken_out_of_a_nonce(bea: Client, request_: Request) -> None:
    request_.nonce = request_.nonce.partition("@")[0]
    request_.request_digest = snapshot.request_digest(request_)
    request_.save()
    assert WORDS in bea.get(f"/a/{request_.id}/").content.decode()


def test_digests_made_anew_do_not_help(bea: Client, request_: Request) -> None:
    request_.risk = "low"
    request_.request_digest = snapshot.request_digest(request_)
    request_.save()
    assert WORDS in bea.get(f"/a/{request_.id}/").content.decode()


def test_removed_at_hides_nothing_of_a_pending_request(
    bea: Client, bea_api: Caller, request_: Request
) -> None:
    Request.objects.filter(pk=request_.pk).update(removed_at=timezone.now())
    page = bea.get(f"/a/{request_.id}/").content.decode()
    assert "<bdi>security_level</bdi>" in page
    assert "Removed under retention" not in page
    found = bea_api.get(f"/approvals/{request_.id}").json()
    assert (found["removed_at"], found["tampered"]) == (None, None)


def test_a_decision_that_was_never_signed_is_not_shown_as_one(
    bea: Client, bea_api: Caller, office: Office, request_: Request
) -> None:
    office.approve(request_.run_id)
    Request.objects.filter(pk=request_.pk).update(decided_by="cyril")
    assert WORDS in bea.get(f"/a/{request_.id}/").content.decode()
    assert bea_api.get(f"/approvals/{request_.id}").json()["tampered"]


def test_a_sound_request_is_not_called_tampered_with(
    bea: Client, bea_api: Caller, office: Office, request_: Request
) -> None:
    office.approve(request_.run_id)
    for request in (request_, office.request(office.start())):
        assert bea_api.get(f"/approvals/{request.id}").json()["tampered"] is None
        assert WORDS not in bea.get(f"/a/{request.id}/").content.decode()


def test_nothing_is_compared_with_a_forged_approval(bea: Client, office: Office) -> None:
    before = office.request(office.start())
    office.approve(before.run_id)
    Request.objects.filter(pk=before.pk).update(args='{"username": "newhire", "security_level": 9}')
    page = bea.get(f"/a/{office.request(office.start()).id}/").content.decode()
    assert "First request like this" in page


def test_doubts_and_halts_are_verified_alike(bea: Client, office: Office) -> None:
    for request in (office.in_doubt_request(office.in_doubt()), office.held()):
        Request.objects.filter(pk=request.pk).update(sentence="All is well")
        page = bea.get(f"/a/{request.id}/").content.decode()
        assert WORDS in page
        assert f'action="/a/{request.id}/' not in page


def test_limits_of_a_wrong_type_do_not_break_the_page(bea: Client, office: Office) -> None:
    held = office.held()
    for limits in ('5, {"limit": "turns"}', '{"limit": []}, {"limit": "turns"}'):
        Request.objects.filter(pk=held.pk).update(kind="limit", args=f'{{"limits": [{limits}]}}')
        assert WORDS in bea.get(f"/a/{held.id}/").content.decode()


def test_a_list_of_people_that_is_none_takes_no_page_down(bea: Client, request_: Request) -> None:
    Request.objects.filter(pk=request_.pk).update(excluded=5)
    for path in ("/inbox/", f"/a/{request_.id}/"):
        assert f"/a/{request_.id}/" in bea.get(path).content.decode()
