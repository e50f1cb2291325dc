"""Refused attempts to decide are in the audit: who, which kind, once."""

from collections.abc import Callable
from uuid import uuid4

import pytest

from approvals.decisions import batch, checks
from approvals.decisions.decide import resolve, undo
from approvals.errors import NotFound
from approvals.models import Approval, AuditEntry
from approvals.signed import audit
from runtime.core.values.enums import GateKind
from runtime.errors import RequestError
from runtime.ports.access import Actor
from tests.support import seeds

pytestmark = pytest.mark.django_db


def recorded(approval: Approval) -> list[tuple[str | None, str]]:
    rows = AuditEntry.objects.filter(run=approval.run_id, act__startswith=checks.REFUSED)
    return list(rows.order_by("seq").values_list("actor", "act"))


def refuse(act: Callable[[], object]) -> None:
    with pytest.raises(RequestError):
        act()


@pytest.mark.parametrize("times", [1, 3])
def test_a_refused_decision_is_audited_once(
    ada: Actor, bea: Actor, cyril: Actor, times: int
) -> None:
    approval = seeds.pending()
    for _ in range(times):
        refuse(lambda: seeds.decide(approval, ada))
        refuse(lambda: seeds.decide(approval, cyril))
        refuse(lambda: seeds.decide(approval, seeds.bearer(bea, "runs:read")))
        refuse(lambda: seeds.decide(approval, bea, digest="sha256:other"))
    assert recorded(approval) == [
        ("ada", "refused: requester"),
        ("cyril", "refused: not_found"),
        ("bea", "refused: scope"),
        ("bea", "refused: digest"),
    ]
    assert audit.verify(approval.run_id) == 5
    assert seeds.decide(approval, bea).status == "approved"


def test_a_decision_on_a_changed_request_is_audited(bea: Actor) -> None:
    approval = seeds.pending()
    Approval.objects.filter(pk=approval.pk).update(sentence="Harmless")
    refuse(lambda: seeds.decide(approval, bea))
    assert recorded(approval) == [("bea", "refused: unverified")]


def test_other_doors_of_decisions_audit_refusals_too(ada: Actor, cyril: Actor) -> None:
    approval = seeds.pending()
    refuse(lambda: undo(approval_id=approval.id, actor=ada))
    outcomes = batch.decide_each(
        items={approval.id: approval.approval_digest},
        verdict="approve",
        reason="",
        count=None,
        actor=cyril,
    )
    assert isinstance(outcomes[0].problem, NotFound)
    doubt = seeds.pending(kind=GateKind.IN_DOUBT)
    refuse(
        lambda: resolve(
            run=doubt.run_id, gate=doubt.gate, outcome="give_up", reason="lost", actor=ada
        )
    )
    assert recorded(approval) == [("ada", "refused: requester"), ("cyril", "refused: not_found")]
    assert recorded(doubt) == [("ada", "refused: requester")]


def test_a_batch_audits_the_requests_that_it_leaves_out(ada: Actor, bea: Actor) -> None:
    approval = seeds.pending(requester="bea")
    items = {approval.id: approval.approval_digest}
    batch.decide_each(items=items, verdict="deny", reason="no", count=None, actor=bea)
    assert recorded(approval) == [("bea", "refused: requester")]


def test_no_person_floods_the_audit(ada: Actor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "MAX_REFUSALS", 2)
    approval = seeds.pending()
    for name in ("eva", "dan", "cora"):
        checks.record_refusal(Actor(person=name), NotFound(), pk=approval.pk)
    assert recorded(approval) == [("eva", "refused: not_found"), ("dan", "refused: not_found")]


def test_an_error_of_the_decider_is_no_refusal(bea: Actor) -> None:
    approval = seeds.pending()
    refuse(lambda: seeds.decide(approval, bea, "deny"))  # without a reason
    checks.record_refusal(bea, NotFound(), pk=uuid4())
    assert recorded(approval) == []
