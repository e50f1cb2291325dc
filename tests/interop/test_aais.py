"""The six cases of AAIS 1.0 over HTTP: what a decision does, and the envelopes that the client exports after it."""

from typing import Any
from uuid import uuid4

import aais
import httpx2
import pytest

from signoff_client import Signoff
from signoff_client.aais import build_envelopes
from tests.interop.conftest import Desk

pytestmark = pytest.mark.e2e


class Asked:
    """A request of an instance that people are asked about."""

    def __init__(self, desk: Desk, timeout: str = "5m") -> None:
        self.desk, self.name = desk, f"AAIS {uuid4().hex[:8]}"
        headers = {
            "Authorization": f"Bearer {desk.provision(self.name)}",
            "Idempotency-Key": str(uuid4()),
        }
        body = {"tool": "pay", "arguments": {"euros": 0.1}, "timeout": timeout}
        answer = httpx2.post(f"{desk.url}/v1/requests", headers=headers, json=body)
        assert answer.status_code == 201, answer.text
        self.run = str(answer.json()["id"])

    def decide(self, approval: dict[str, Any], verdict: str, **changes: Any) -> int:
        """Return the status of the answer."""
        body = {"verdict": verdict, "digest": approval["digest"], "confirm": approval["confirm"]}
        path = f"/api/v1/approvals/{approval['id']}/decision"
        status, _ = self.desk.office.stack.ask("bea", "POST", path, {**body, **changes})
        return status

    def outcomes(self, approval: dict[str, Any]) -> list[str]:
        """Export the request, and return the outcomes in it."""
        known = self.desk.office.stack.credentials
        with Signoff(known["url"], known["users"]["bea"]["token"]) as signoff:
            envelopes = build_envelopes(signoff.read_approval(approval["id"]))
        assert [aais.validate(envelope) for envelope in envelopes] == envelopes
        return [
            envelope["resolution"]["outcome"]
            for envelope in envelopes[1:]
            if "resolution" in envelope
        ]


def test_a_choice_is_bound_to_its_action_and_made_once(desk: Desk) -> None:
    asked = Asked(desk)
    (approval,) = desk.wait(asked.name)
    changed_action = asked.decide(approval, "approve", digest="sha256:" + "0" * 64)
    unoffered_scope = asked.decide(approval, "approve", scope="persistent")
    assert (changed_action, unoffered_scope, asked.outcomes(approval)) == (409, 422, [])
    approve_once = asked.decide(approval, "approve")
    assert (approve_once, asked.outcomes(approval)) == (200, ["approved"])
    identical_replay = asked.decide(approval, "approve")
    conflicting_replay = asked.decide(approval, "deny")
    assert (identical_replay, conflicting_replay) == (200, 409)
    assert asked.outcomes(approval) == ["approved"]


def test_an_expired_request_is_not_decided(desk: Desk) -> None:
    asked = Asked(desk, timeout="3s")
    (approval,) = desk.wait(asked.name, status="expired")
    assert asked.decide(approval, "approve") == 410
    assert asked.outcomes(approval) == ["expired"]
