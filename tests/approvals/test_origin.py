"""The people in a run's origin cannot decide in it: its requester and everyone who steered it."""

from dataclasses import replace

import pytest
from django.db import transaction
from pytest_django import Settings

from approvals.adapter import Approvals
from approvals.decisions.undo import undo
from approvals.errors import TamperedWith
from approvals.models import Request
from approvals.permissions import principals
from approvals.queries import inbox
from approvals.queries.requests import approval
from approvals.requests import verification
from runtime.core.enums import Decision, Verdict
from runtime.errors import Forbidden
from runtime.models import Run
from runtime.ports.access import Actor
from runtime.ports.approvals import ApprovalVoid, NotConfirmed
from tests.support import seeds

pytestmark = pytest.mark.django_db


def asked() -> Request:
    """A request in a run that the admin started and that has Ada in its origin."""
    snapshot = seeds.snapshot(seeds.run("admin"), requester="admin")
    return seeds.opened(replace(snapshot, origin=("ada", "admin")))[0]


def join(request: Request, actor: Actor) -> None:
    with transaction.atomic():
        Approvals().join(run=request.run_id, person=actor.person)


def test_a_person_in_the_origin_before_the_gate_cannot_decide(bea: Actor) -> None:
    """Their message may still be in the mailbox when the gate opens."""
    run = seeds.run()
    Run.objects.filter(pk=run).update(origin=["ada", "bea"])
    (request,) = seeds.opened(seeds.snapshot(run))
    with pytest.raises(Forbidden) as caught:
        seeds.decide(request, bea)
    assert caught.value.code == "origin"


def test_an_approval_by_a_later_origin_is_void(bea: Actor, settings: Settings) -> None:
    request, other = seeds.pending(), seeds.pending()
    seeds.decide(request, bea, reason="ok")
    with pytest.raises(ApprovalVoid, match="bea"):
        seeds.verify_approval(request, origin=("ada", "bea"))  # by the journal, despite the rows
    join(request, bea)
    with pytest.raises(ApprovalVoid, match="bea"):
        seeds.verify_approval(request)
    settings.ABEYANCE_UNDO_SECONDS = 60
    seeds.decide(other, bea)
    join(other, bea)
    with pytest.raises(Forbidden):
        undo(request=other.id, actor=bea)


def test_a_decision_of_the_sealed_origin_is_refused(
    ada: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The web does not sign changed rows; workers reject statements that a web signed without checking."""
    request = asked()
    Request.objects.filter(pk=request.pk).update(origin=[], excluded=[])
    with pytest.raises(TamperedWith):
        seeds.decide(request, ada, reason="ok")
    monkeypatch.setattr(verification, "fault", lambda row: None)
    seeds.decide(request, ada, reason="ok")
    Request.objects.filter(pk=request.pk).update(origin=request.origin, excluded=request.excluded)
    decision = Decision(verdict=Verdict.APPROVE, by="ada", reason="ok")
    with pytest.raises(NotConfirmed, match="ada, who decided, is in the run's origin"):
        seeds.verify_decision(request, decision)


def test_the_lists_tell_both_apart(ada: Actor, bea: Actor) -> None:
    request = asked()
    assert approval(request.id, actor=bea).origin == ("admin", "ada")
    for actor, mine, others in ((ada, 0, 1), (bea, 1, 0)):
        counts = inbox.counts(principals.principal_of(actor))
        assert (counts.mine, counts.others) == (mine, others)
    join(request, bea)
    assert inbox.counts(principals.principal_of(bea)).mine == 0
