"""Nobody decides on a run that they had a part in: not its requester, and not the others it comes from."""

from dataclasses import replace

import pytest
from django.db import transaction

from approvals import inbox, permissions, tampering
from approvals.actions import decide, settle, undo
from approvals.errors import TamperedWith
from approvals.frozen import request_digest
from approvals.gatekeeper import Gatekeeper
from approvals.models import Request
from approvals.queries import approval
from runtime.core.decisions import Decision, GateKind, Verdict
from runtime.models import Run
from runtime.ports import Actor, ApprovalVoid, Forbidden, NotConfirmed
from tests.approvals import seeds

pytestmark = pytest.mark.django_db

keeper = Gatekeeper()


def asked(kind: GateKind = GateKind.APPROVAL) -> Request:
    """A request in a run that the admin started, which comes from Ada too."""
    picture = seeds.picture(seeds.run("admin"), requester="admin", kind=kind)
    return seeds.opened(replace(picture, origin=("ada", "admin")))[0]


def approve(request: Request, actor: Actor) -> None:
    digest = request.request_digest
    decide(request=request.id, verdict="approve", digest=digest, reason="ok", actor=actor)


def join(request: Request, actor: Actor) -> None:
    with transaction.atomic():
        keeper.join(run=request.run_id, person=actor.person)


def refused(request: Request, actor: Actor) -> str:
    with pytest.raises(Forbidden) as caught:
        approve(request, actor)
    return caught.value.code


def test_who_the_run_comes_from_does_not_approve(ada: Actor, bea: Actor) -> None:
    request = asked()
    assert refused(request, ada) == "origin"
    approve(request, bea)


@pytest.mark.parametrize("kind", [GateKind.HOLD, GateKind.LIMIT, GateKind.VERSION])
def test_who_the_run_comes_from_lets_no_halt_go_on(ada: Actor, kind: GateKind) -> None:
    request = asked(kind)
    with pytest.raises(Forbidden, match="had a part in"):
        decide(
            request=request.id,
            verdict="continue",
            digest=request.request_digest,
            reason="",
            actor=ada,
        )


def test_who_the_run_comes_from_settles_no_doubt(ada: Actor) -> None:
    request = asked(GateKind.IN_DOUBT)
    with pytest.raises(Forbidden, match="had a part in"):
        settle(run=request.run_id, gate=request.gate, outcome="give_up", reason="no", actor=ada)


def test_who_steers_the_run_later_does_not_decide(bea: Actor) -> None:
    request = seeds.pending()
    join(request, bea)
    assert refused(request, bea) == "origin"


def test_who_steers_the_run_before_it_asks_does_not_decide(bea: Actor) -> None:
    """Their message may still be in the mailbox when the gate opens."""
    run = seeds.run()
    Run.objects.filter(pk=run).update(origin=["ada", "bea"])
    assert refused(seeds.opened(seeds.picture(run))[0], bea) == "origin"


def test_what_they_approved_is_asked_again(bea: Actor) -> None:
    request = seeds.pending()
    approve(request, bea)
    join(request, bea)
    with pytest.raises(ApprovalVoid, match="bea"):
        keeper.confirm(gate=request.gate, action_digest=request.action_digest)


def test_the_journal_counts_whatever_the_rows_say(bea: Actor) -> None:
    request = seeds.pending()
    approve(request, bea)
    with pytest.raises(ApprovalVoid, match="bea"):
        keeper.confirm(
            gate=request.gate, action_digest=request.action_digest, origin=("ada", "bea")
        )


def test_a_decision_of_the_sealed_origin_is_not_taken_up(
    ada: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever writes rows cannot make the web sign it, and a web that forgot to look convinces no worker."""
    request = asked()
    Request.objects.filter(pk=request.pk).update(origin=[], excluded=[])
    with pytest.raises(TamperedWith):
        approve(request, ada)
    monkeypatch.setattr(tampering, "fault", lambda row: None)
    approve(request, ada)
    Request.objects.filter(pk=request.pk).update(origin=request.origin, excluded=request.excluded)
    decision = Decision(verdict=Verdict.APPROVE, by="ada", reason="ok")
    with pytest.raises(NotConfirmed, match="comes from ada"):
        keeper.vouch(gate=request.gate, decision=decision)


def test_the_origin_is_part_of_what_is_sealed() -> None:
    request = asked()
    request.origin = ["admin"]
    assert request_digest(request) != request.request_digest


def test_a_request_without_an_origin_keeps_its_digest() -> None:
    """As processes of the version before write it."""
    assert seeds.pending().origin == []


def test_the_lists_tell_both_apart(ada: Actor, bea: Actor) -> None:
    request = asked()
    for actor, mine, others in ((ada, 0, 1), (bea, 1, 0)):
        standing = permissions.standing_of(actor)
        counts = inbox.counts(standing)
        assert (counts.mine, counts.others) == (mine, others)
    join(request, bea)
    assert inbox.counts(permissions.standing_of(bea)).mine == 0


def test_a_decision_is_not_taken_back_into_ones_own_run(bea: Actor, settings: object) -> None:
    settings.ABEYANCE_UNDO_SECONDS = 60  # type: ignore[attr-defined]
    request = seeds.pending()
    approve(request, bea)
    join(request, bea)
    with pytest.raises(Forbidden):
        undo(request=request.id, actor=bea)


def test_readers_are_told_who_decides_nothing(bea: Actor) -> None:
    assert approval(asked().id, actor=bea).origin == ("admin", "ada")
