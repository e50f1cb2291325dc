"""The approvals of the API: its shapes, its scopes, and that a body cannot get ahead of the rights."""

from uuid import uuid4

import pytest
from ninja.testing import TestClient

from approvals.errors import NotFound
from approvals.web.api import router
from runtime.errors import InvalidInput
from runtime.ports.access import Actor
from tests.support import seeds

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def client() -> TestClient:
    return TestClient(router)


def test_an_approval_has_the_promised_fields(client: TestClient, bea: Actor) -> None:
    request = seeds.pending()
    answer = client.get(f"/approvals/{request.id}", auth=bea).json()
    promised = {
        "id": str(request.id),
        "run": str(request.run_id),
        "gate": str(request.gate),
        "kind": "approval",
        "frame": "0.c1.0",
        "call": "c2.0",
        "tool": "set_privileges",
        "args": seeds.ARGS,
        "path": list(seeds.PATH),
        "risk": "high",
        "status": "pending",
        "digest": request.request_digest,
        "requester": "ada",
        "origin": ["ada"],
        "expires_at": None,
        "not_before": None,
        "result_schema": None,
        "late_outcomes": [],
    }
    assert {name: answer[name] for name in promised} == promised
    assert set(answer) - set(promised) == {
        "sentence", "created_at", "decided_by", "decided_at", "effective_at", "reason", "removed_at",
        "tampered",
    }  # fmt: skip


def test_a_list_comes_in_pieces(client: TestClient, bea: Actor) -> None:
    ids = [str(seeds.pending().id) for _ in range(3)]
    first = client.get("/approvals?status=pending&limit=2", auth=bea).json()
    assert [item["id"] for item in first["items"]] == ids[:2]
    second = client.get(f"/approvals?status=pending&cursor={first['next']}", auth=bea).json()
    assert [item["id"] for item in second["items"]] == ids[2:]
    assert second["next"] is None


def test_a_list_can_be_cut_to_a_run(client: TestClient, bea: Actor) -> None:
    request, _ = seeds.pending(), seeds.pending()
    answer = client.get(f"/approvals?run={request.run_id}", auth=bea).json()
    assert [item["id"] for item in answer["items"]] == [str(request.id)]


def test_a_decision_answers_with_the_decided_approval(client: TestClient, bea: Actor) -> None:
    request = seeds.pending()
    body = {"verdict": "deny", "digest": request.request_digest, "reason": "Too much."}
    answer = client.post(f"/approvals/{request.id}/decision", json=body, auth=bea)
    assert answer.status_code == 200
    decided = answer.json()
    assert (decided["status"], decided["decided_by"]) == ("denied", "bea")
    assert decided["reason"] == "Too much."
    assert decided["decided_at"]


def test_an_approval_needs_no_reason(client: TestClient, bea: Actor) -> None:
    request = seeds.pending()
    body = {"verdict": "approve", "digest": request.request_digest}
    answer = client.post(f"/approvals/{request.id}/decision", json=body, auth=bea)
    assert answer.json()["status"] == "approved"


@pytest.mark.parametrize("body", [{}, {"verdict": [], "digest": {}, "reason": 5}])
def test_without_permission_any_body_gets_not_found(
    client: TestClient, cyril: Actor, bea: Actor, body: dict[str, object]
) -> None:
    path = f"/approvals/{seeds.pending().id}/decision"
    with pytest.raises(NotFound):
        client.post(path, json=body, auth=cyril)
    with pytest.raises(InvalidInput):
        client.post(path, json=body, auth=bea)


@pytest.mark.parametrize("name", ["1", "not-an-id", str(uuid4())])
def test_an_unknown_object_is_not_found(client: TestClient, bea: Actor, name: str) -> None:
    with pytest.raises(NotFound):
        client.get(f"/approvals/{name}", auth=bea)
    with pytest.raises(NotFound):
        client.post(f"/approvals/{name}/decision", json={}, auth=bea)
