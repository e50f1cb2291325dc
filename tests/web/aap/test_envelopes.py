"""The Core list of AAIS 1.0 over HTTP: what a decision does, raced too, and the envelopes that the client makes of it.

`tests/interop/test_aais.py` plays the six cases of the specification against a whole installation.
"""

import copy
import json
from datetime import datetime
from functools import partial
from typing import Any

import aais
import pytest
from aais.core import ConflictError

from approvals import clock
from approvals.models import Approval as ApprovalRow
from approvals.models import AuditEntry
from runtime.models import Signal
from signoff_client import Approval
from signoff_client.aais import envelopes_of
from tests.support.api_client import Caller
from tests.support.people import until
from tests.support.threads import together
from tests.web.aap.conftest import BODY, Desk, Door

MANY = 6


class Reviewer:
    """Bea, with a program that reads and decides the request of an instance."""

    def __init__(self, bea: Caller, desk: Desk, made: dict[str, Any]) -> None:
        desk.advance(made["id"])
        self.bea, self.path = bea, f"/approvals/{desk.approval(made['id']).id}"

    def read(self) -> Approval:
        return Approval.model_validate(self.bea.get(self.path).json())

    def envelopes(self) -> list[dict[str, Any]]:
        """The envelopes, each as the validator of the specification returns it."""
        envelopes = envelopes_of(self.read())
        assert [aais.validate(envelope) for envelope in envelopes] == envelopes
        return envelopes

    def outcomes(self) -> list[str]:
        resolutions = [each["resolution"] for each in self.envelopes() if "resolution" in each]
        return [resolution["outcome"] for resolution in resolutions]

    def decide(self, verdict: str, **changes: Any) -> Any:
        request = self.read()
        values = {"verdict": verdict, "digest": request.digest, "reason": "Because."}
        return self.bea.post(f"{self.path}/decision", {**values, **changes})


@pytest.fixture
def reviewer(bea_api: Caller, bot: Door, desk: Desk, settings: Any) -> Reviewer:
    settings.SIGNOFF_UNDO_SECONDS = 0
    return Reviewer(bea_api, desk, bot.ask())


def test_the_digest_is_that_of_the_action_which_was_asked_for(reviewer: Reviewer) -> None:
    (requested,) = reviewer.envelopes()
    request = requested["request"]
    assert request["action_digest"] == aais.action_digest(request["action"])
    arguments = request["action"]["arguments"]
    assert {name: arguments[name] for name in ("tool", "arguments")} == {
        name: BODY[name] for name in ("tool", "arguments")
    }
    changed = copy.deepcopy(request["action"])
    changed["arguments"]["arguments"]["replicas"] = 4
    assert aais.action_digest(changed) != request["action_digest"]


@pytest.mark.parametrize("verdict", ["approve", "deny"])
def test_each_end_is_what_the_authority_of_the_package_comes_to(
    reviewer: Reviewer, verdict: str
) -> None:
    (requested,) = reviewer.envelopes()
    assert reviewer.decide(verdict).status_code == 200
    _, decided, resolved = reviewer.envelopes()
    store = aais.ApprovalStore()
    store.add(requested)
    at = datetime.fromisoformat(decided["decision"]["decided_at"])
    result = store.decide(decided, now=at)["resolution"]
    for name in ("request_id", "decision_id", "action_digest", "outcome", "effective_scope"):
        assert result[name] == resolved["resolution"][name]
    with pytest.raises(ConflictError):
        store.decide({**decided, "decision": {**decided["decision"], "id": "another"}}, now=at)


def test_a_stale_or_unoffered_decision_decides_nothing(reviewer: Reviewer) -> None:
    for status, verdict, changes in (
        (409, "approve", {"digest": "sha256:" + "0" * 64}),  # stale
        (422, "approve", {"scope": "persistent"}),  # choices that were not offered
        (422, "cancel", {}),
        (422, "continue", {}),
    ):
        assert reviewer.decide(verdict, **changes).status_code == status
        assert (reviewer.read().status, reviewer.outcomes()) == ("pending", [])
    (requested,) = reviewer.envelopes()
    scopes = {choice["scope"] for choice in requested["request"]["choices"]}
    assert scopes == {"once"}


def test_an_expired_request_stays_expired(
    bea_api: Caller, bot: Door, desk: Desk, settings: Any
) -> None:
    settings.SIGNOFF_UNDO_SECONDS = 0
    made = bot.ask({**BODY, "timeout": "1s"})
    reviewer = Reviewer(bea_api, desk, made)
    deadline = datetime.fromisoformat(made["deadline_at"])
    until(lambda: (clock.now() >= deadline) or None, "the deadline")
    for _ in range(2):
        assert reviewer.decide("approve").status_code == 410
        assert reviewer.outcomes() == ["expired"]


@pytest.mark.parametrize("verdict", ["approve", "deny"])
def test_a_replay_gets_the_same_answer_and_a_conflict_changes_nothing(
    reviewer: Reviewer, verdict: str
) -> None:
    answer = reviewer.decide(verdict)
    envelopes, entries = reviewer.envelopes(), AuditEntry.objects.count()
    for _ in range(2):
        again = reviewer.decide(verdict)
        assert (again.status_code, again.json()) == (200, answer.json())
        other = reviewer.decide("deny" if verdict == "approve" else "approve")
        assert (other.status_code, other.json()["decided_by"]) == (409, "bea")
        assert reviewer.decide(verdict, reason="Another.").status_code == 409
    assert (reviewer.envelopes(), AuditEntry.objects.count()) == (envelopes, entries)


def test_decisions_at_once_are_one_decision_and_its_answer(
    reviewer: Reviewer, bea_api: Caller
) -> None:
    body = {"digest": reviewer.read().digest, "reason": "Because."}
    answers: list[tuple[str, Any]] = []

    def decide(verdict: str) -> None:
        sent = json.dumps({**body, "verdict": verdict})
        answers.append((verdict, bea_api.send(f"{reviewer.path}/decision", sent)))

    together([partial(decide, verdict) for verdict in ("approve", "deny") * MANY])
    row = ApprovalRow.objects.get()
    won = {"approved": "approve", "denied": "deny"}[row.status]
    assert {answer.status_code for verdict, answer in answers if verdict == won} == {200}
    assert {answer.status_code for verdict, answer in answers if verdict != won} == {409}
    assert Signal.objects.filter(run=row.run_id).count() == 1
    assert reviewer.outcomes() == [row.status]


def test_extensions_pass_through(reviewer: Reviewer) -> None:
    """Ours are named, bind the digest of this request, and survive a consumer that does not know them."""
    (requested,) = reviewer.envelopes()
    extensions = requested["request"]["extensions"]
    assert extensions == {"signoff.local/digest": reviewer.read().digest}
    parsed = json.loads(json.dumps(aais.validate(requested)))
    assert parsed["request"]["extensions"] == extensions
    with pytest.raises(aais.ValidationError):
        aais.validate({**requested, "unknown": 1})
