"""The approvals of the API: its shapes, its scopes, and that a body cannot get ahead of the rights."""

from typing import Any
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


def test_a_list_is_cut_and_comes_in_pieces(client: TestClient, bea: Actor) -> None:
    of = seeds.run()
    requests = seeds.opened(*(seeds.snapshot(of) for _ in range(3)))
    doubt = seeds.in_doubt(not_before=seeds.moment(5))
    seeds.decide(requests[2], bea)
    ids = [str(one.id) for one in requests]

    def listed(query: str) -> tuple[list[str], str | None]:
        answer = client.get(f"/approvals?{query}", auth=bea).json()
        return [item["id"] for item in answer["items"]], answer["next"]

    assert listed("") == listed("kind=any") == ([*ids, str(doubt.id)], None)
    assert listed("kind=approval&status=pending") == (ids[:2], None)
    assert listed("kind=in_doubt") == ([str(doubt.id)], None)
    first, cursor = listed(f"run={of}&limit=2")
    assert first == ids[:2]
    assert listed(f"run={of}&cursor={cursor}") == (ids[2:], None)
    with pytest.raises(InvalidInput) as caught:
        listed("kind=unknown")
    assert caught.value.field == "kind"


def test_a_decision_answers_with_the_decided_approval(client: TestClient, bea: Actor) -> None:
    request = seeds.pending()
    body = {"verdict": "deny", "digest": request.request_digest, "reason": "Too much."}
    answer = client.post(f"/approvals/{request.id}/decision", json=body, auth=bea)
    assert answer.status_code == 200
    decided = answer.json()
    assert (decided["status"], decided["decided_by"]) == ("denied", "bea")
    assert decided["reason"] == "Too much."
    assert decided["decided_at"]


def test_a_call_in_doubt_is_settled_and_null_is_a_result(client: TestClient, bea: Actor) -> None:
    request = seeds.in_doubt()
    path = f"/runs/{request.run_id}/gates/{request.gate}/settle"
    body: dict[str, Any] = {"outcome": "happened", "reason": "It is there."}
    with pytest.raises(InvalidInput):
        client.post(path, json=body, auth=bea)
    found = client.post(path, json={**body, "result": None}, auth=bea).json()
    assert (found["gate"], found["kind"]) == (str(request.gate), "in_doubt")
    assert (found["status"], found["decided_by"]) == ("answered", "bea")


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
    for path in (f"/approvals/{name}/decision", f"/runs/{name}/gates/{uuid4()}/settle"):
        with pytest.raises(NotFound):
            client.post(path, json={}, auth=bea)
