"""The Core list of AAIS 1.0 over HTTP: what a decision does, raced too, and the envelopes that the client makes of it.

`tests/interop/test_aais.py` plays the six cases of the specification against a whole installation, and
`tests/client/test_aais.py` compares each end with the package's own authority.
"""

import copy
import json
from functools import partial
from typing import Any

import aais
import pytest

from approvals.models import Approval as ApprovalRow
from runtime.models import Signal
from signoff_client import Approval
from signoff_client.aais import envelopes_of
from tests.support.api_client import Caller
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
