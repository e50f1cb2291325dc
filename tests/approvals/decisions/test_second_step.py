"""What a decision of high risk and the answer of a question need beside the right to decide."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import override_settings

from approvals.models import Approval
from approvals.port.adapter import ApprovalService
from approvals.reads.approval_views import read_approval
from approvals.requests import confirmation
from approvals.rules.policy import Demands, Stage
from approvals.signed import statements
from config.env import environment
from runtime.core.values.enums import Decision, GateKind, Risk, Verdict
from runtime.errors import InvalidInput
from runtime.keyring import sealing
from runtime.ports.access import Actor
from runtime.ports.approvals import NotConfirmed
from tests.support import seeds
from tests.support.office import reseal
from tests.support.seeds import Cast

pytestmark = pytest.mark.django_db

UUID_TEXT = "0190b7d1-6c1c-7a54-b0a5-3c1d2e4f5a6b"


@pytest.mark.parametrize(("risk", "window"), [(Risk.LOW, 10), (Risk.MEDIUM, 10), (Risk.HIGH, 0)])
def test_low_and_medium_risk_can_be_undone(bea: Actor, risk: Risk, window: int) -> None:
    with override_settings(SIGNOFF_UNDO_SECONDS=environment.read({}).undo_seconds):
        found = seeds.decide(seeds.pending(risk=risk), bea)
    assert found.decided_at
    assert found.effective_at == (found.decided_at + timedelta(seconds=window) if window else None)


@pytest.mark.parametrize(
    ("sentence", "args", "name"),
    [
        ("Give newhire level 3", {"id": UUID_TEXT, "level": 3, "username": "newhire"}, "newhire"),
        ("Pay 40 to ACME Ltd, DE1", {"iban": "DE1", "to": "ACME Ltd", "sum": 40}, "ACME Ltd"),
        ("Pay 40.5 euros back", {"number": "A-1", "sum": 40.5}, "40.5"),
        ("Delete it", {"id": UUID_TEXT, "name": "Q3 report"}, "Q3 report"),
        ("Delete it", {"id": UUID_TEXT}, "delete"),
        ("Renewed, made", {"who": ["new", {"name": "made"}]}, "made"),  # whole words
        ("Set x\u202ey", {"a": "x\u202ey", "b": "•", "c": sealing.REDACTED}, "delete"),
        ("Do it", {"sql": "UPDATE users SET level = 1 WHERE TRUE"}, "UPDATE users SET level = 1"),
        ("Do it", {"sealed": {sealing.MARK: "hidden"}, "on": True}, "delete"),
        ("Do it", None, "delete"),
    ],
)
def test_the_object_is_the_argument_that_tells_most(sentence: str, args: Any, name: str) -> None:
    assert confirmation.name_object("delete", sentence, args) == name


@pytest.mark.parametrize("given", [None, "", "new", "nеw.hire", "set_privileges", ["new.hire"]])
def test_a_high_risk_is_approved_by_its_name_only(bea: Actor, given: object) -> None:
    request = seeds.pending()
    assert read_approval(request.id, actor=bea).confirm == "new.hire"
    with pytest.raises(InvalidInput) as caught:
        seeds.decide(request, bea, confirm=given)
    assert caught.value.field == "confirm"
    assert seeds.untouched(request)
    assert seeds.decide(request, bea, confirm=" New.Hire ").status == "approved"


def test_other_decisions_have_one_step(bea: Actor) -> None:
    assert read_approval(seeds.pending(risk=Risk.MEDIUM).id, actor=bea).confirm is None
    seeds.decide(seeds.pending(risk=Risk.MEDIUM), bea, confirm=None)
    seeds.decide(seeds.pending(), bea, "deny", "No.", confirm=None)


@pytest.mark.parametrize(
    ("sentence", "args", "edited", "name"),
    [
        ("Pay 40 to Ann", {"to": "Ann", "sum": 40}, {"to": "Bob", "sum": 40}, "Bob"),
        ("Pay 40 to Ann", {"to": "Ann", "sum": 40}, {"to": "Ann", "sum": 4000}, "Ann"),
        ("Pay 40", {"sum": 40}, {"sum": 4000}, "4000"),
        ("Pay Ann", {"who": {"name": "Ann"}}, {"who": {"name": "Bob"}}, "Bob"),
        ("Pay 40 to Ann", {"to": "Ann", "sum": 40}, {"sum": 40}, "40"),  # the object is gone
        ("Pay Ann", {"to": "Ann"}, {"to": "\u202e", "note": "now"}, "now"),
        ("Pay", {}, {"to": "Bob"}, "Bob"),
    ],
)
def test_the_object_of_an_edit_is_that_of_the_changed_call(
    sentence: str, args: Any, edited: Any, name: str
) -> None:
    assert confirmation.name_edited_object("pay", sentence, args, edited) == name


def test_an_edit_at_high_risk_confirms_the_changed_object(bea: Actor) -> None:
    request = seeds.pending()
    edit: dict[str, Any] = {"arguments": {"username": "old.hand", "security_level": 3}}
    for given in ("new.hire", "", None):
        with pytest.raises(
            InvalidInput, match=r'must repeat "old\.hand", the object of the'
        ) as caught:
            seeds.decide(request, bea, "edit", **edit, confirm=given)
        assert caught.value.field == "confirm"
    assert seeds.untouched(request)
    assert seeds.decide(request, bea, "edit", **edit, confirm="old.hand").status == "approved"


def test_running_a_high_risk_again_confirms_its_object(bea: Actor) -> None:
    request = seeds.in_doubt()
    with pytest.raises(InvalidInput) as caught:
        seeds.settle(request, bea, "run_again", confirm=None)
    assert caught.value.field == "confirm"
    assert seeds.untouched(request)
    assert seeds.settle(request, bea, "run_again", confirm="new.hire").status == "approved"
    seeds.settle(seeds.in_doubt(), bea, "give_up", confirm=None)
    seeds.settle(seeds.in_doubt(risk=Risk.MEDIUM), bea, "run_again", confirm=None)


# Questions


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
    demands = Demands(rule="two", stages=stages).demand_one_person()
    reseal([approval], rule=demands.stored())
    found = seeds.decide(approval, Actor(person=answers), Verdict.ANSWER, result="blue")
    assert (found.status, found.quorum) == ("answered", 1)


def test_the_demands_of_a_question_keep_their_people() -> None:
    only = Demands(
        rule="r", stages=(Stage(people=("cyril",)), Stage(groups=("finance",), quorum=3))
    )
    [stage] = only.demand_one_person().stages
    assert (stage.quorum, stage.people, stage.groups) == (1, ("cyril",), ("finance",))
