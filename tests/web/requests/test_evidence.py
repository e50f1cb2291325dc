"""The evidence of one decision: shown on its page, and a file that is verified with a public key alone."""

import json
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from django.db import connection
from django.test import Client
from django.utils import timezone

from approvals.decisions.teamwork import extend
from approvals.models import Approval
from tests.support.office import BEA, Office
from tests.support.pages import shows, text


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
