"""A deputy decides in the place of an absent person: signed, for some days, once, and never in a run of either."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from threading import Event
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command

from approvals import clock
from approvals.decisions.decide import undo
from approvals.errors import AlreadyVoted, NotFound
from approvals.models import Absence, Approval, Vote
from approvals.people import absences, accounts
from approvals.port.adapter import ApprovalService
from approvals.port.jobs import Outlooks
from approvals.reads import deciders, inbox
from approvals.reads.inbox import View
from approvals.rights.principals import find_principal
from approvals.signed import audit, rows
from runtime.errors import Forbidden, InvalidInput
from runtime.ports.access import Actor
from runtime.ports.approvals import ApprovalVoid, NotConfirmed
from tests.approvals.policies.office import asked, reviewers
from tests.support import seeds
from tests.support.seeds import decide

pytestmark = pytest.mark.django_db

ONLY_BEA = "rules: [{name: Only bea, people: [bea]}]"
BEA_AND_EVA = "rules: [{name: Both, quorum: 2, people: [bea, eva]}]"
BEA, CORA, DAN, EVA = (Actor(person=name) for name in ("bea", "cora", "dan", "eva"))


@pytest.fixture(autouse=True)
def four(ada: Actor) -> None:
    reviewers("bea", "cora", "dan", "eva")


def away(person: Actor = BEA, deputy: str = "cora", days: float = 7, after: float = -1) -> None:
    """Let a person be away from `after` days from now."""
    starts = clock.read_time() + timedelta(days=after)
    absences.announce(
        deputy=deputy, starts=starts, ends=starts + timedelta(days=days), actor=person
    )


def refused(approval: Approval, actor: Actor) -> str:
    with pytest.raises(Forbidden) as caught:
        decide(approval, actor)
    return caught.value.code


def on_list(approval: Approval, actor: Actor) -> bool:
    page = inbox.read_page(find_principal(actor), view=View.MINE)
    return approval.id in {one.id for one in page.items}


def verified(approval: Approval) -> None:
    approval.refresh_from_db()
    seeds.verify_decision(approval)
    seeds.verify_approval(approval)
    audit.verify(approval.run_id)


def test_a_deputy_decides_and_the_decision_names_both() -> None:
    approval = asked(ONLY_BEA)
    assert not on_list(approval, CORA)
    away()
    assert on_list(approval, CORA)
    decided = decide(approval, CORA)
    assert (decided.status, decided.decided_by, decided.decided_for) == ("approved", "cora", "bea")
    verified(approval)
    denied = asked(ONLY_BEA)
    assert decide(denied, CORA, "deny", "No").decided_for == "bea"
    denied.refresh_from_db()
    seeds.verify_decision(denied, seeds.heard(denied))


Acts = tuple[Callable[[], object], ...]
TIMES: dict[str, Acts] = {
    "not before it begins": (lambda: away(after=1),),
    "not after it is over": (lambda: signed("bea", "cora", -2, -0.01),),
    "not for more than 60 days": (lambda: signed("bea", "cora", -1, 61),),
    "not after the absent person ended it": (away, partial(absences.end_absence, "bea", actor=BEA)),
    "not after the deputy ended it": (away, partial(absences.end_absence, "bea", actor=CORA)),
    "not after the command line ended it": (away, partial(absences.end_absence, "bea", actor=None)),
    "not after another deputy was named": (away, partial(away, deputy="dan")),
    "not after another absence took its place, however long ago": (
        lambda: signed("bea", "cora", -1, 20),
        lambda: signed("bea", "dan", -140, -95, seq=2),
    ),
    "not for a disabled person": (away, partial(accounts.disable, "bea", actor=None)),
    "not for a person without the right": (
        away,
        partial(accounts.set_groups, "bea", set(), actor=None),
    ),
    "not by a deputy's deputy": (partial(away, DAN, "cora"), lambda: signed("bea", "dan", -1, 1)),
}


def signed(person: str, deputy: str, starts: float, ends: float, seq: int = 1) -> None:
    """A signed row that the page refuses, such as one of a release with other limits; days from now."""
    now = clock.read_time()
    row = Absence(
        username=person,
        seq=seq,
        act="set",
        deputy=deputy,
        starts=now + timedelta(days=starts),
        ends=now + timedelta(days=ends),
        by=person,
        at=now - timedelta(seconds=1),
    )
    rows.add(row)


@pytest.mark.parametrize("case", TIMES)
def test_an_absence_counts(case: str) -> None:
    approval = asked(ONLY_BEA)
    for act in TIMES[case]:
        act()
    with pytest.raises(NotFound):
        decide(approval, CORA)
    assert not on_list(approval, CORA)


def test_no_run_of_either_of_the_two_is_decided_by_the_deputy() -> None:
    away()
    own = asked(ONLY_BEA, requester="cora")
    assert refused(own, CORA) == "requester"
    theirs = asked(ONLY_BEA, requester="bea")
    assert refused(theirs, CORA) == "not_eligible"
    for name in ("bea", "cora"):
        steered = asked(ONLY_BEA)
        ApprovalService().join(run=steered.run_id, person=name)
        assert refused(steered, CORA)
        assert not on_list(steered, CORA)
    joined = asked(ONLY_BEA)
    decide(joined, CORA)
    ApprovalService().join(run=joined.run_id, person="bea")  # after the decision, before the call
    joined.refresh_from_db()
    with pytest.raises(ApprovalVoid, match="may no longer decide"):
        seeds.verify_approval(joined)


def test_one_person_has_one_vote_also_by_a_deputy() -> None:
    approval = asked(BEA_AND_EVA)
    away()
    decide(approval, CORA)  # in the place of bea
    approval.refresh_from_db()
    assert (approval.voted, approval.voted_for) == (["cora"], ["bea"])
    for again in (CORA, BEA):
        with pytest.raises(AlreadyVoted):
            decide(approval, again)
        assert not on_list(approval, again)
    away(deputy="dan")
    with pytest.raises(AlreadyVoted, match="cora, in the place of bea"):
        decide(approval, DAN)
    away(EVA, "cora")
    with pytest.raises(AlreadyVoted):
        decide(approval, CORA)  # in the place of eva: one human, one vote
    absences.end_absence("eva", actor=EVA)
    assert decide(approval, EVA).status == "approved"
    verified(approval)  # another deputy was named, but only from then on
    accounts.set_groups("cora", set(), actor=None)
    with pytest.raises(ApprovalVoid, match="cora"):
        seeds.verify_approval(approval)


def test_an_absent_person_who_voted_leaves_their_deputy_no_vote() -> None:
    approval = asked(BEA_AND_EVA)
    away()
    decide(approval, BEA)  # she is back for a moment
    assert not on_list(approval, CORA)


def test_a_vote_for_a_person_who_steered_the_run_counts_for_no_other_absent_person() -> None:
    approval = asked("rules: [{name: Three, quorum: 2, people: [bea, dan, eva]}]")
    away()
    away(EVA, "cora")
    decide(approval, CORA)
    decide(approval, DAN)
    verified(approval)
    [place] = approval.voted_for
    with pytest.raises(ApprovalVoid, match=f"in the place of {place}"):
        seeds.verify_approval(approval, origin={place})


def test_a_vote_in_a_place_can_be_withdrawn_after_the_absence() -> None:
    approval = asked(BEA_AND_EVA)
    away()
    decide(approval, CORA)
    absences.end_absence("bea", actor=BEA)
    with pytest.raises(Forbidden, match="scope"):
        undo(approval_id=approval.id, actor=seeds.bearer(CORA, "approvals:read"))
    with pytest.raises(NotFound):
        undo(approval_id=approval.id, actor=DAN)
    undo(approval_id=approval.id, actor=CORA)
    with pytest.raises(NotFound):
        undo(approval_id=approval.id, actor=CORA)
    approval.refresh_from_db()
    assert (approval.voted, approval.voted_for) == ([], [])


def forge_row() -> None:
    """A row that names cora, by a program that writes to Postgres."""
    now = clock.read_time()
    Absence.objects.create(
        username="bea",
        seq=9,
        act="set",
        deputy="cora",
        starts=now - timedelta(days=1),
        ends=now + timedelta(days=1),
        by="bea",
        at=now - timedelta(minutes=1),
        signature="00" * 64,
        key_id="1",
    )


def copy_row() -> None:
    """The signed row of another deputy, changed."""
    away(deputy="dan")
    row = Absence.objects.get()
    row.pk, row.seq, row.deputy = None, 2, "cora"
    row.save(force_insert=True)


@pytest.mark.parametrize("forge", [forge_row, copy_row])
def test_an_absence_that_its_person_did_not_sign_makes_no_deputy(forge: Callable[[], None]) -> None:
    approval = asked(ONLY_BEA)
    forge()
    with pytest.raises(NotFound):
        decide(approval, CORA)


PLACES: dict[str, Callable[[UUID], object]] = {
    "none, as if she had decided for herself": lambda pk: Approval.objects.filter(pk=pk).update(
        decided_for=None
    ),
    "another": lambda pk: Vote.objects.filter(approval=pk).update(for_person="eva"),
    "her own vote": lambda pk: Vote.objects.filter(approval=pk).update(for_person=None),
}


@pytest.mark.parametrize("place", PLACES)
def test_the_worker_verifies_in_whose_place_a_deputy_voted(place: str) -> None:
    approval = asked(ONLY_BEA)
    away()
    decide(approval, CORA)
    approval.refresh_from_db()
    said = seeds.heard(approval)
    PLACES[place](approval.pk)
    approval.refresh_from_db()
    for verify in (seeds.verify_approval, lambda one: seeds.verify_decision(one, said)):
        with pytest.raises(NotConfirmed):
            verify(approval)


def test_the_worker_refuses_a_decision_whose_absence_it_cannot_verify(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A web process with an error let cora vote in the place of bea, who named no deputy."""
    approval = asked(ONLY_BEA)
    away()
    decide(approval, CORA)
    approval.refresh_from_db()
    with monkeypatch.context() as patched:
        patched.setattr(rows, "is_valid", _only_assignments(rows.is_valid))
        with pytest.raises(ApprovalVoid):
            seeds.verify_approval(approval)
    seeds.verify_approval(approval)


def _only_assignments(known: Callable[..., bool]) -> Callable[..., bool]:
    return lambda row, text=None: not isinstance(row, Absence) and known(row, text)


REFUSED: dict[str, tuple[dict[str, object], str]] = {
    "herself": ({"deputy": "bea"}, "deputy"),
    "no right": ({"deputy": "cyril"}, "deputy"),
    "unknown": ({"deputy": "stranger"}, "deputy"),
    "not text": ({"deputy": None}, "deputy"),
    "a null character": ({"deputy": "co\0ra"}, "deputy"),
    "too long": ({"days": 61}, "ends"),
    "backwards": ({"days": -1}, "ends"),
    "far ahead": ({"after": 400}, "starts"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_announced_names_its_field(case: str) -> None:
    seeds.person("cyril")
    given, field = REFUSED[case]
    with pytest.raises(InvalidInput) as caught:
        away(**given)  # type: ignore[arg-type]
    assert caught.value.field == field
    assert not Absence.objects.exists()


def test_only_the_person_names_a_deputy_and_others_may_not_end_it() -> None:
    away(days=60)
    with pytest.raises(InvalidInput, match="must not be away on these days"):
        away(CORA, "bea")
    for stranger in (DAN, Actor(person="ghost"), seeds.bearer(BEA, "approvals:read")):
        with pytest.raises(Forbidden):
            absences.end_absence("bea", actor=stranger)
    with pytest.raises(Forbidden):
        away(seeds.bearer(BEA, "approvals:read"))
    with pytest.raises(Forbidden):
        away(seeds.person("fay"))  # she decides nothing


def test_the_command_lists_and_ends(capsys: pytest.CaptureFixture[str]) -> None:
    away()
    call_command("absences", "list")
    assert "bea\taway\tdeputy: cora" in capsys.readouterr().out
    call_command("absences", "end", "bea")
    with pytest.raises(CommandError):
        call_command("absences", "end", "bea")


def test_the_outlook_names_deputies_and_who_is_away() -> None:
    later = asked(ONLY_BEA, expires_at=clock.read_time() + timedelta(days=4))
    away(after=1)
    assert deciders.compute_outlook(
        later, deciders.list_deciders()
    ).suffice  # cora decides in her place then
    approval = asked("rules: [{name: All, quorum: 2, people: [bea, eva]}]")
    away()
    found = deciders.compute_outlook(approval, deciders.list_deciders())
    assert set(found.people) == {"eva", "cora (for bea)"}
    assert (found.away, found.suffice) == (("bea (deputy cora)",), True)
    ApprovalService().join(run=approval.run_id, person="bea")
    approval.refresh_from_db()
    assert not deciders.compute_outlook(approval, deciders.list_deciders()).suffice


@pytest.mark.parametrize(
    ("after", "days", "suffice"),
    [(-1, 3, True), (-1, 6, False), (1, 6, False), (1, 2, True), (5, 6, True)],
)
def test_the_outlook_counts_the_absences_of_the_deadline(
    after: float, days: float, suffice: bool
) -> None:
    """Cora, the deputy, started the run, so only bea can decide it: before the deadline in 4 days, or not."""
    others = [
        seeds.pending(requester="cora", expires_at=clock.read_time() + timedelta(days=9)),
        seeds.pending(requester="cora"),
    ]
    approval = asked(ONLY_BEA, requester="cora", expires_at=clock.read_time() + timedelta(days=4))
    away(after=after, days=days)
    assert deciders.compute_outlook(approval, deciders.list_deciders()).suffice is suffice
    later = asked(ONLY_BEA, requester="cora", expires_at=clock.read_time() + timedelta(days=60))
    assert Outlooks().mark(Event()) == int(not suffice)
    for one in (later, *others):
        one.refresh_from_db()
        assert one.undecidable_at is None
