"""Questions at the choke point and in the worker: who may answer under a policy, and what a forged row is worth."""

import pytest

from approvals.models import Approval
from approvals.port.adapter import ApprovalService
from approvals.rules.policy import Demands, Stage
from approvals.signed import statements
from runtime.core.values.enums import Decision, GateKind, Verdict
from runtime.ports.access import Actor
from runtime.ports.approvals import NotConfirmed
from tests.support import seeds
from tests.support.office import reseal
from tests.support.seeds import Cast

pytestmark = pytest.mark.django_db
TEXT = {"type": "string"}


def _asked() -> Approval:
    return seeds.pending(kind=GateKind.QUESTION, result_schema=TEXT)


def test_a_forged_approval_of_a_question_is_refused(cast: Cast) -> None:
    """The signature is good: the web process itself was made to sign."""
    approval = _asked()
    forged = Decision(verdict=Verdict.APPROVE, by="bea")
    approval.status, approval.decided_by, approval.decided_at = (
        "approved",
        "bea",
        approval.created_at,
    )
    approval.reason = ""
    statements.sign(approval, statements.make(approval, forged, approval.created_at))
    approval.save()
    with pytest.raises(NotConfirmed, match="a gate of kind question has no verdict approve"):
        ApprovalService().verify_decision(gate=approval.gate, decision=forged)
    with pytest.raises(NotConfirmed):
        ApprovalService().verify_approval(
            gate=approval.gate, action_digest=approval.action_digest, decision=forged
        )


@pytest.mark.parametrize(
    ("stages", "answers"),
    [((Stage(quorum=2),), "bea"), ((Stage(people=("cyril",)), Stage(quorum=2)), "bea")],
)
def test_one_named_person_answers(cast: Cast, stages: tuple[Stage, ...], answers: str) -> None:
    approval = _asked()
    demands = Demands(rule="two", stages=stages).of_one_person()
    reseal([approval], rule=demands.stored())
    found = seeds.decide(approval, Actor(person=answers), Verdict.ANSWER, result="blue")
    assert (found.status, found.quorum) == ("answered", 1)


def test_the_demands_of_a_question_keep_their_people() -> None:
    only = Demands(
        rule="r", stages=(Stage(people=("cyril",)), Stage(groups=("finance",), quorum=3))
    )
    [stage] = only.of_one_person().stages
    assert (stage.quorum, stage.people, stage.groups) == (1, ("cyril",), ("finance",))
