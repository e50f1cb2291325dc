"""Requests as envelopes that the validator of AAIS accepts, and its own store plays through."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import aais
import pytest
from aais.core import ConflictError

from signoff_client import Approval, SignoffError
from signoff_client.aais import build_envelopes

START = datetime(2026, 1, 1, 12, tzinfo=UTC)


def request(**changes: Any) -> Approval:
    fields: dict[str, Any] = {
        **dict.fromkeys(Approval.model_fields),
        "id": uuid4(),
        "run": uuid4(),
        "gate": uuid4(),
        "kind": "approval",
        "status": "pending",
        "tool": "set_privileges",
        "args": {"username": "newhire", "level": 3, "share": 0.1},
        "sentence": "Set the privileges of newhire to 3",
        "risk": "medium",
        "requester": "ada",
        "path": ["hr_onboarding", "account_agent"],
        "digest": "sha256:1",
        "created_at": START,
        "expires_at": START + timedelta(days=1),
    }
    return Approval(**fields | changes)


def decided(status: str, by: str | None = "bea@example.com", **changes: Any) -> Approval:
    return request(status=status, decided_by=by, decided_at=START + timedelta(hours=1), **changes)


@pytest.mark.parametrize(
    ("approval", "outcomes"),
    [
        (request(), []),
        (request(kind="hold", tool="", sentence="", args="The agent stopped.", path=[]), []),
        (request(args="••••"), []),
        (decided("approved"), ["approved"]),
        (decided("approved", allowance=uuid4()), ["approved"]),
        (decided("denied"), ["denied"]),
        (decided("answered"), ["cancelled"]),
        (
            decided("approved", edited={"username": "newhire", "level": 1}),
            ["cancelled", "approved"],
        ),
        (decided("expired", by=None), ["expired"]),
        (decided("cancelled", by=None), ["cancelled"]),
    ],
)
def test_the_validator_accepts_each_envelope(approval: Approval, outcomes: list[str]) -> None:
    envelopes = build_envelopes(approval)
    assert [aais.validate(envelope) for envelope in envelopes] == envelopes
    assert [envelope["sequence"] for envelope in envelopes] == list(range(len(envelopes)))
    assert len({envelope["id"] for envelope in envelopes}) == len(envelopes)
    resolutions = [envelope["resolution"] for envelope in envelopes if "resolution" in envelope]
    assert [resolution["outcome"] for resolution in resolutions] == outcomes


@pytest.mark.parametrize("status", ["approved", "denied"])
def test_the_store_of_the_package_comes_to_the_same_resolution(status: str) -> None:
    requested, decision, resolved = build_envelopes(decided(status))
    store, at = aais.ApprovalStore(), START + timedelta(hours=1)
    store.add(requested)
    result = store.decide(decision, now=at)
    for name in ("request_id", "decision_id", "action_digest", "outcome", "effective_scope"):
        assert result["resolution"][name] == resolved["resolution"][name]
    with pytest.raises(ConflictError):
        store.decide({**decision, "decision": {**decision["decision"], "id": "another"}}, now=at)


def test_an_envelope_has_the_digest_of_the_request_and_offers_nothing_for_later() -> None:
    (requested,) = build_envelopes(request())
    asked = requested["request"]
    assert asked["extensions"] == {"signoff.local/digest": "sha256:1"}
    assert {choice["scope"] for choice in asked["choices"]} == {"once"}


def test_a_decision_that_can_be_undone_is_not_told_yet() -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    assert len(build_envelopes(decided("approved", effective_at=later))) == 1


def test_a_changed_or_erased_request_has_no_envelope() -> None:
    for changes in ({"tampered": "args"}, {"removed_at": START}):
        with pytest.raises(SignoffError):
            build_envelopes(request(**changes))
