"""The people in a run's origin cannot decide in it: its requester and everyone who steered it."""

from dataclasses import replace

import pytest
from django.db import transaction

from approvals.adapter import Approvals
from approvals.decisions.decide import decide
from approvals.decisions.in_doubt import resolve
from approvals.decisions.undo import undo
from approvals.errors import TamperedWith
from approvals.models import Request
from approvals.permissions import principals
from approvals.queries import inbox
from approvals.queries.requests import approval
from approvals.requests import verification
from approvals.requests.snapshot import request_digest
from runtime.core.enums import Decision, GateKind, Verdict
from runtime.errors import Forbidden
from runtime.models import Run
from runtime.ports.access import Actor
from runtime.ports.approvals import ApprovalVoid, NotConfirmed
from tests.support import seeds

pytestmark = pytest.mark.django_db

approvals = Approvals()


def asked(kind: GateKind = GateKind.APPROVAL) -> Request:
    """A request in a run that the admin started and that has Ada in its origin."""
    snapshot = seeds.snapshot(seeds.run("admin"), requester="admin", kind=kind)
    return seeds.opened(replace(snapshot, origin=("ada", "admin")))[0]


def approve(request: Request, actor: Actor) -> None:
    digest = request.request_digest
    decide(request=request.id, verdict="approve", digest=digest, reason="ok", actor=actor)


def join(request: Request, actor: Actor) -> None:
    with transaction.atomic():
        approvals.join(run=request.run_id, person=actor.person)


def refused(request: Request, actor: Actor) -> str:
    with pytest.raises(Forbidden) as caught:
        approve(request, actor)
    return caught.value.code


def test_people_in_the_origin_of_a_run_cannot_approve(ada: Actor, bea: Actor) -> None:
    request = asked()
    assert refused(request, ada) == "origin"
    approve(request, bea)


@pytest.mark.parametrize("kind", [GateKind.HOLD, GateKind.LIMIT, GateKind.VERSION])
def test_a_person_of_the_origin_continues_no_halt(ada: Actor, kind: GateKind) -> None:
    request = asked(kind)
    with pytest.raises(Forbidden, match="is in this run's origin"):
        decide(
            request=request.id,
            verdict="continue",
            digest=request.request_digest,
            reason="",
            actor=ada,
        )


def test_a_person_of_the_origin_settles_no_doubt(ada: Actor) -> None:
    request = asked(GateKind.IN_DOUBT)
    with pytest.raises(Forbidden, match="is in this run's origin"):
        resolve(run=request.run_id, gate=request.gate, outcome="give_up", reason="no", actor=ada)


def test_a_person_who_joins_the_origin_cannot_decide(bea: Actor) -> None:
    request = seeds.pending()
    join(request, bea)
    assert refused(request, bea) == "origin"


def test_a_person_in_the_origin_before_the_gate_cannot_decide(bea: Actor) -> None:
    """Their message may still be in the mailbox when the gate opens."""
    run = seeds.run()
    Run.objects.filter(pk=run).update(origin=["ada", "bea"])
    assert refused(seeds.opened(seeds.snapshot(run))[0], bea) == "origin"


def test_an_approval_by_a_later_origin_is_void(bea: Actor) -> None:
    request = seeds.pending()
    approve(request, bea)
    join(request, bea)
    with pytest.raises(ApprovalVoid, match="bea"):
        approvals.verify_approval(gate=request.gate, action_digest=request.action_digest)


def test_the_journals_origin_counts_despite_the_rows(bea: Actor) -> None:
    request = seeds.pending()
    approve(request, bea)
    with pytest.raises(ApprovalVoid, match="bea"):
        approvals.verify_approval(
            gate=request.gate, action_digest=request.action_digest, origin=("ada", "bea")
        )


def test_a_decision_of_the_sealed_origin_is_refused(
    ada: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The web does not sign changed rows; workers reject statements that a web signed without checking."""
    request = asked()
    Request.objects.filter(pk=request.pk).update(origin=[], excluded=[])
    with pytest.raises(TamperedWith):
        approve(request, ada)
    monkeypatch.setattr(verification, "fault", lambda row: None)
    approve(request, ada)
    Request.objects.filter(pk=request.pk).update(origin=request.origin, excluded=request.excluded)
    decision = Decision(verdict=Verdict.APPROVE, by="ada", reason="ok")
    with pytest.raises(NotConfirmed, match="ada, who decided, is in the run's origin"):
        approvals.verify_decision(gate=request.gate, decision=decision)


def test_the_seal_covers_the_origin() -> None:
    request = asked()
    request.origin = ["admin"]
    assert request_digest(request) != request.request_digest


def test_a_request_without_an_origin_keeps_its_digest() -> None:
    """A row as processes of the previous version write it."""
    assert seeds.pending().origin == []


def test_the_lists_tell_both_apart(ada: Actor, bea: Actor) -> None:
    request = asked()
    for actor, mine, others in ((ada, 0, 1), (bea, 1, 0)):
        principal = principals.principal_of(actor)
        counts = inbox.counts(principal)
        assert (counts.mine, counts.others) == (mine, others)
    join(request, bea)
    assert inbox.counts(principals.principal_of(bea)).mine == 0


def test_a_decision_is_not_taken_back_into_ones_own_run(bea: Actor, settings: object) -> None:
    settings.ABEYANCE_UNDO_SECONDS = 60  # type: ignore[attr-defined]
    request = seeds.pending()
    approve(request, bea)
    join(request, bea)
    with pytest.raises(Forbidden):
        undo(request=request.id, actor=bea)


def test_readers_see_the_origin(bea: Actor) -> None:
    assert approval(asked().id, actor=bea).origin == ("admin", "ada")
