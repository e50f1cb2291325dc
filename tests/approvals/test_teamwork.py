"""Comments, claims, hand-overs and open pages: they give no right, and the database cannot forge a comment."""

from datetime import timedelta
from functools import partial
from threading import Barrier

import pytest
from django.test import Client

from approvals import clock
from approvals.decisions import teamwork
from approvals.decisions.decide import undo
from approvals.errors import AlreadyClaimed, AlreadyDecided, NotFound
from approvals.models import Approval, ApprovalClaim, ApprovalViewer, AuditEntry, Comment, Handover
from approvals.port.adapter import ApprovalService
from approvals.reads import marks
from approvals.signed import audit, rows
from runtime.errors import Forbidden, InvalidInput
from runtime.ports.access import Actor
from tests.approvals.policies.office import reviewers
from tests.support import seeds
from tests.support.pages import has, log_in, shows, text
from tests.support.seeds import Cast
from tests.support.threads import together

pytestmark = pytest.mark.django_db
CORA, DAN = Actor(person="cora"), Actor(person="dan")


@pytest.fixture
def asked(cast: Cast) -> Approval:
    reviewers("cora", "dan")
    return seeds.pending(risk="low")


def mark(approval: Approval) -> marks.Mark:
    return marks.read_teamwork(approval.id, "bea").mark


def past(approval: Approval) -> None:
    """Let ten minutes pass."""
    over = clock.read_time() - timedelta(seconds=1)
    ApprovalClaim.objects.filter(approval=approval).update(until=over)


def test_a_claim_is_one_persons_until_it_ends(asked: Approval) -> None:
    end = teamwork.claim(approval_id=asked.id, actor=CORA)
    assert end - clock.read_time() <= teamwork.LASTS
    with pytest.raises(AlreadyClaimed, match="cora is looking"):
        teamwork.claim(approval_id=asked.id, actor=DAN)
    since = mark(asked).since
    teamwork.claim(approval_id=asked.id, actor=CORA)  # again: longer, and since when it was
    assert (mark(asked).claimed_by, mark(asked).since) == ("cora", since)
    teamwork.release(approval_id=asked.id, actor=DAN)  # not his
    past(asked)
    assert mark(asked).claimed_by is None
    teamwork.claim(approval_id=asked.id, actor=DAN)
    teamwork.release(approval_id=asked.id, actor=DAN)
    assert mark(asked) == marks.Mark()


def test_others_decide_all_the_same_and_a_claim_ends_with_the_decision(
    asked: Approval, settings: pytest.FixtureRequest
) -> None:
    settings.SIGNOFF_UNDO_SECONDS = 60  # type: ignore[attr-defined]
    teamwork.claim(approval_id=asked.id, actor=CORA)
    seeds.decide(asked, DAN)
    assert mark(asked).claimed_by is None
    with pytest.raises(AlreadyDecided):
        teamwork.claim(approval_id=asked.id, actor=CORA)
    with pytest.raises(AlreadyDecided):
        undo(approval_id=asked.id, actor=CORA)
    undo(approval_id=asked.id, actor=DAN)
    assert mark(asked).claimed_by is None


@pytest.mark.django_db(transaction=True)
def test_of_two_claims_at_once_one_holds_and_a_decision_waits_for_neither() -> None:
    reviewers("cora", "dan", "eva")
    for _ in range(8):
        approval, ready, lost = seeds.pending(risk="low"), Barrier(3, timeout=60), list[str]()

        def act(
            actor: Actor,
            approval: Approval = approval,
            ready: Barrier = ready,
            lost: list[str] = lost,
        ) -> None:
            ready.wait()
            if actor.person == "eva":
                seeds.decide(approval, actor)
                return
            try:
                teamwork.claim(approval_id=approval.id, actor=actor)
            except (AlreadyClaimed, AlreadyDecided):
                lost.append(actor.person)

        together([partial(act, one) for one in (CORA, DAN, Actor(person="eva"))], within=60)
        holders = set(
            ApprovalClaim.objects.filter(approval=approval).values_list("person", flat=True)
        )
        assert holders | set(lost) == {"cora", "dan"}
        assert not holders & set(lost)
        approval.refresh_from_db()
        assert (approval.status, mark(approval).claimed_by) == ("approved", None)
        audit.verify(approval.run_id)


def test_a_hand_over_moves_the_claim_and_gives_no_right(asked: Approval, cast: Cast) -> None:
    teamwork.claim(approval_id=asked.id, actor=CORA)
    with pytest.raises(AlreadyClaimed):
        teamwork.hand_over(approval_id=asked.id, to="bea", note="", actor=DAN)
    with pytest.raises(InvalidInput, match="at most 500"):
        teamwork.hand_over(approval_id=asked.id, to="dan", note="x" * 501, actor=CORA)
    teamwork.hand_over(approval_id=asked.id, to="dan", note="You know <b>her</b>", actor=CORA)
    found = mark(asked)
    assert (found.claimed_by, found.handed_to, found.handed_by) == ("dan", "dan", "cora")
    page = shows(log_in(cast.bea), asked, "Handed to <bdi>dan</bdi> by <bdi>cora</bdi>")
    has(page, "You know &lt;b&gt;her&lt;/b&gt;")
    past(asked)
    assert (mark(asked).claimed_by, mark(asked).handed_to) == (None, "dan")  # still on his list
    acts = AuditEntry.objects.filter(run=asked.run_id, act="handed over")
    assert [(row.actor, "You know" in row.detail) for row in acts] == [("cora", False)]  # a digest
    teamwork.release(approval_id=asked.id, actor=DAN)
    assert mark(asked).handed_to is None


def test_no_hand_over_leads_to_a_decision_by_a_person_of_the_runs_origin(asked: Approval) -> None:
    ApprovalService().join(run=asked.run_id, person="dan")  # he steered the run
    for to in ("ada", "dan", "cyril", "admin", "stranger", "cora", "", None):
        with pytest.raises(InvalidInput) as caught:
            teamwork.hand_over(approval_id=asked.id, to=to, note="", actor=CORA)
        assert caught.value.field == "to"
    for actor in (Actor(person="ada"), DAN, Actor(person="admin")):
        for act in (teamwork.claim, partial(teamwork.hand_over, to="bea", note="")):
            with pytest.raises(Forbidden):
                act(approval_id=asked.id, actor=actor)
    teamwork.hand_over(approval_id=asked.id, to="bea", note="", actor=CORA)
    ApprovalService().join(run=asked.run_id, person="bea")
    with pytest.raises(Forbidden):
        seeds.decide(asked, Actor(person="bea"))


def test_a_comment_is_signed_audited_and_stays_after_the_decision(
    asked: Approval, cast: Cast
) -> None:
    hostile = "<script>alert(1)</script>\n\u202eok"
    teamwork.add_comment(approval_id=asked.id, text=hostile, actor=CORA)
    teamwork.add_comment(
        approval_id=asked.id, text="Mine", actor=Actor(person="ada")
    )  # she started the run
    page = shows(log_in(cast.bea), asked, "&lt;script&gt;", "⟦U+202E⟧", "started the run")
    has(page, "the agent does not receive them", hides=["<script>alert", "\u202e"])
    assert AuditEntry.objects.filter(run=asked.run_id, act="commented").count() == 2
    assert audit.verify(asked.run_id) == 3
    seeds.decide(asked, DAN)
    asked.refresh_from_db()
    seeds.verify_approval(asked)
    shows(log_in(cast.bea), asked, "Comments", "Mine")


def test_a_comment_that_its_person_did_not_write_is_not_shown(asked: Approval, cast: Cast) -> None:
    kept = teamwork.add_comment(approval_id=asked.id, text="Deny this", actor=CORA)
    other = seeds.pending()
    Comment.objects.create(
        approval=other, person="cora", text="Deny this", at=kept.at,
        signature=kept.signature, key_id=kept.key_id,
    )  # fmt: skip
    made = Comment(id=kept.id, approval=other, person="cora", text="Fine", at=kept.at)
    rows.sign(made)
    made.pk, made.text = other.gate, "Approve it"
    made.save(force_insert=True)
    page = shows(log_in(cast.bea), other, "was changed in the database")
    has(page, hides=["Deny this", "Approve it"])
    with pytest.raises(Exception, match="append-only"):
        Comment.objects.filter(pk=kept.pk).update(text="Approve it")


CHANGES = {
    "note": {"note": "Approve it"}, "by": {"by": "eva"}, "to": {"person": "bea"},
    "no signature": {"signature": "", "key_id": ""},
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_hand_over_that_its_person_did_not_write_is_not_shown(
    asked: Approval, cast: Cast, change: str
) -> None:
    bea, other = log_in(cast.bea), seeds.pending()
    teamwork.hand_over(approval_id=asked.id, to="dan", note="Deny this", actor=CORA)
    shows(bea, asked, "by <bdi>cora</bdi>", "Deny this")
    Handover.objects.filter(approval=asked).update(**CHANGES[change])
    hidden = ["by <bdi>cora</bdi>", "by <bdi>eva</bdi>", "Deny this", "Approve it"]
    shows(bea, asked, "no person signed them", hides=hidden)
    Handover.objects.filter(approval=asked).update(approval=other)
    shows(bea, other, "no person signed them", hides=hidden)


def test_a_refused_comment_keeps_its_text(
    asked: Approval, cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    cora = log_in(cast.bea)
    answer = cora.post(f"/a/{asked.id}/comment/", {"text": "x" * 2_001})
    has(answer.content.decode(), "must have at most 2000 characters", "x" * 2_001)
    assert answer.status_code == 422
    for text_, actor in ((" ", CORA), ("ok", Actor(person="cyril"))):
        with pytest.raises((InvalidInput, NotFound)):
            teamwork.add_comment(approval_id=asked.id, text=text_, actor=actor)
    with pytest.raises(Forbidden):
        teamwork.add_comment(
            approval_id=asked.id, text="ok", actor=seeds.bearer(CORA, "approvals:read")
        )
    monkeypatch.setattr(teamwork, "MAX_COMMENTS", 0)
    with pytest.raises(InvalidInput, match="at most 0 comments"):
        teamwork.add_comment(approval_id=asked.id, text="ok", actor=CORA)
    ApprovalService().erase(run=asked.run_id, at=clock.read_time(), head="")
    with pytest.raises(InvalidInput, match="removed under retention"):
        teamwork.add_comment(approval_id=asked.id, text="ok", actor=CORA)


def test_an_open_page_shows_who_else_has_it_open(asked: Approval, cast: Cast) -> None:
    bea, admin = log_in(cast.bea), log_in(cast.admin)
    shows(bea, asked)  # a GET records nothing
    assert not ApprovalViewer.objects.exists()
    teamwork.record_presence(approval_id=asked.id, actor=CORA)
    answer = bea.post(f"/a/{asked.id}/here/").content.decode()
    has(answer, "<bdi>cora</bdi> has this open", hides=["<bdi>bea</bdi>"])
    has(text(admin, asked), "<bdi>bea</bdi> has this open", "<bdi>cora</bdi> has this open")
    ApprovalViewer.objects.filter(person="cora").update(
        at=clock.read_time() - timedelta(seconds=46)
    )
    assert marks.read_teamwork(asked.id, "dan").viewers == ("bea",)
    ApprovalViewer.objects.update(at=clock.read_time() - timedelta(hours=2))
    teamwork.record_presence(approval_id=asked.id, actor=DAN)
    assert set(ApprovalViewer.objects.values_list("person", flat=True)) == {"dan"}


def test_rows_and_lists_say_who_looks(asked: Approval, cast: Cast, client: Client) -> None:
    bea, free = log_in(cast.bea), seeds.pending(risk="low", args={**seeds.ARGS, "username": "eve"})
    teamwork.claim(approval_id=asked.id, actor=CORA)
    teamwork.hand_over(approval_id=free.id, to="bea", note="", actor=DAN)
    shows(
        bea,
        "/inbox/",
        "<bdi>cora</bdi> is looking",
        "handed to you by <bdi>dan</bdi>",
        "Handed to me",
    )
    lists = {
        "claimed:yes": {asked, free}, "claimed:no": set(), "claimed:me": {free}, "handed:me": {free},
    }  # fmt: skip
    for q, wanted in lists.items():
        page = text(bea, f"/inbox/?q={q}")
        assert {
            approval for approval in (asked, free) if f'data-id="{approval.id}"' in page
        } == wanted, q
    shows(bea, "/inbox/?q=claimed:cora", "The filter must have me, yes or no", status=422)
    shows(bea, "/inbox/?q=handed:cora", "The filter must have me after handed:", status=422)
