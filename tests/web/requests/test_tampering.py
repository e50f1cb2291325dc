"""A request that was changed in the database is shown as tampered with, and cannot be decided."""

import json
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from django.db import connection
from django.test import Client
from django.utils import timezone

from approvals.decisions.teamwork import extend
from approvals.models import Approval
from approvals.requests import snapshot
from tests.support.api_client import Caller, code_of
from tests.support.office import BEA, Office
from tests.support.pages import has, send, shows, text, text_of

WORDS = "This request was tampered with"

FORGERIES: dict[str, dict[str, Any]] = {
    "sentence": {"sentence": "Set the privileges of newhire to 1"},
    "time": {"created_at": timezone.now()},
    "seal": {"seal": "00"},
    "seal of other letters": {"seal": "é"},
    "key of the seal": {"seal_key_id": "none"},
    "no JSON": {"args": "{", "schema": "["},
    "arguments that are removed": {"args": "{}", "removed_at": timezone.now()},
    "path": {"path": {"a": 1}},
    "digest": {"approval_digest": "sha256:0"},
    "origin that is no list": {"origin": 5},
    "origin of other things": {"origin": [5, {"a": 1}]},
    "people who may not decide": {"excluded": []},
    "people who may not decide that are no list": {"excluded": 5},
    "kind": {"kind": "nothing"},
    "schema of a wrong type": {"schema": "5", "args": "5"},
    "call": {"call": "nothing"},
    "frame": {"frame": "nothing"},
    "path without an end": {"path": []},
    "path of numbers": {"path": [1, 2]},
    "another item of the plan": {"preview": '{"plan": {"item": "Other", "number": 2, "of": 3}}'},
    "an item that is no object": {"preview": '{"plan": []}'},
    "a preview that is a list": {"preview": "[]"},
    "a preview that is a text": {"preview": '"x"'},
    "parts of a preview of wrong types": {"preview": '{"shown": 7, "before": [1]}'},
    "a preview that is no JSON": {"preview": "no JSON"},
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_request_is_shown_as_tampered_with_and_not_decided(
    bea: Client, bea_api: Caller, asked: Approval, forgery: str
) -> None:
    Approval.objects.filter(pk=asked.pk).update(**FORGERIES[forgery])
    forged = Approval.objects.get(pk=asked.pk)
    shows(bea, forged, WORDS, hides=[f"/a/{forged.id}/approve/"])
    found = bea_api.get("/approvals").json()["items"][0]["tampered"]
    assert found
    assert bea_api.get(f"/approvals/{forged.id}").json()["tampered"] == found
    shows(bea, "/inbox/", "Tampered with: ", f"/a/{forged.id}/")
    for verdict in ("approve", "deny"):
        body = {"verdict": verdict, "digest": forged.approval_digest, "reason": "because"}
        answer = bea_api.post(f"/approvals/{forged.id}/decision", body)
        assert code_of(answer) == (409, "unverified")
        has(text_of(send(bea, forged, verdict, reason="because"), 409), WORDS)
    assert Approval.objects.get(pk=asked.pk).status == "pending"


@pytest.mark.parametrize("change", [{"risk": "low"}, {"created_at": timezone.now()}], ids=str)
def test_a_new_digest_hides_no_change(
    bea: Client, asked: Approval, change: dict[str, object]
) -> None:
    for name, value in change.items():
        setattr(asked, name, value)
    asked.approval_digest = snapshot.compute_approval_digest(asked)
    asked.save()
    shows(bea, asked, WORDS)


def test_removed_at_hides_no_pending_request(bea: Client, bea_api: Caller, asked: Approval) -> None:
    Approval.objects.filter(pk=asked.pk).update(removed_at=timezone.now())
    shows(bea, asked, "<bdi>security_level</bdi>", hides=["Removed under retention"])
    found = bea_api.get(f"/approvals/{asked.id}").json()
    assert (found["removed_at"], found["tampered"]) == (None, None)


def test_a_decision_that_was_never_signed_is_not_shown_as_one(
    bea: Client, bea_api: Caller, office: Office, asked: Approval
) -> None:
    office.approve(asked.run_id)
    for approval in (asked, office.request(office.start())):
        assert bea_api.get(f"/approvals/{approval.id}").json()["tampered"] is None
        shows(bea, approval, hides=[WORDS])
    Approval.objects.filter(pk=asked.pk).update(decided_by="cyril")
    shows(bea, asked, WORDS)
    assert bea_api.get(f"/approvals/{asked.id}").json()["tampered"]
    shows(bea, approval, "First of its kind: ")  # it is compared with no forged approval


def test_doubts_and_halts_are_verified_alike(bea: Client, office: Office) -> None:
    for approval in (office.in_doubt_request(office.in_doubt()), held := office.held()):
        Approval.objects.filter(pk=approval.pk).update(sentence="All is well")
        shows(bea, approval, WORDS, hides=[f'action="/a/{approval.id}/'])
    for limits in ('5, {"limit": "turns"}', '{"limit": []}, {"limit": "turns"}'):
        Approval.objects.filter(pk=held.pk).update(kind="limit", args=f'{{"limits": [{limits}]}}')
        shows(bea, held, WORDS)


# Evidence


def test_the_signed_decision_verifies_with_the_public_key_alone(
    bea: Client, ada: Client, cyril: Client, office: Office, suspended: UUID
) -> None:
    approval = office.request(suspended)
    path = f"/a/{approval.id}/evidence/"
    shows(bea, f"/a/{approval.id}/", hides=["Download the signed decision"])
    text(bea, path, 404)
    until = timezone.now() + timedelta(days=9)
    extend(approval_id=approval.id, until=until, reason="Cyril is back then.", actor=BEA)
    office.approve(suspended)
    shows(bea, f"/a/{approval.id}/", "Download the signed decision", approval.approval_digest)
    text(cyril, path, 404)
    answer = ada.get(path)
    assert answer["Content-Disposition"] == f'attachment; filename="decision-{approval.id}.json"'
    evidence = json.loads(answer.content)
    statement = _verified(evidence)
    assert (statement["request"], statement["by"]) == (str(approval.id), "bea")
    assert statement["digest"] == evidence["digest"] == approval.approval_digest
    (extension,) = map(_verified, evidence["extensions"])
    assert (extension["gate"], extension["by"]) == (str(approval.gate), "bea")
    assert datetime.fromisoformat(extension["until"]) == until


def test_a_decision_that_does_not_verify_has_no_evidence(
    bea: Client, office: Office, suspended: UUID
) -> None:
    approval = office.request(suspended)
    office.approve(suspended)
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE approvals_approval SET decided_by = 'ada' WHERE id = %s", [approval.id]
        )
    assert Approval.objects.get().decided_by == "ada"
    text(bea, f"/a/{approval.id}/evidence/", 409)
    shows(bea, f"/a/{approval.id}/", hides=["Download the signed decision"])


def _verified(signed: dict[str, str]) -> dict[str, Any]:
    """The signed text. Raises InvalidSignature."""
    key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(signed["public_key"]))
    key.verify(bytes.fromhex(signed["signature"]), signed["signed_bytes"].encode())
    return dict(json.loads(signed["signed_bytes"].partition("\n")[2]))
