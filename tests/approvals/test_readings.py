"""How a request was read: bounded, stored beside the decision, and never a reason to refuse one."""

import json
from typing import Any

import pytest
from django.db import DatabaseError, connection

from approvals.decisions.decide import undo
from approvals.models import Approval, ReviewTime
from approvals.port.adapter import ApprovalService
from approvals.reads import review_times
from approvals.reads.approval_views import ApprovalView, read_approval
from runtime.core.values.enums import Risk
from runtime.ports.access import Actor
from tests.support import seeds

pytestmark = pytest.mark.django_db

WORDS = " ".join(["word"] * 300)
LONG = {"username": "new.hire", "security_level": 3, "note": WORDS}


def _sent(**given: Any) -> str:
    return json.dumps({"opened": 60_000, "visible": 60_000, "sections": {"what": True}, **given})


def _decided(actor: Actor, sent: str, **given: Any) -> ApprovalView:
    decided = seeds.decide(seeds.pending(risk=Risk.MEDIUM, args=LONG, **given), actor)
    review_times.record_reading(decided, review_times.parse_measurement(sent), actor)
    return decided


@pytest.mark.parametrize(
    ("sent", "considered"),
    [
        (_sent(visible=1_000), False),  # 300 words in a second
        (_sent(), True),
        (_sent(opened=1_000), False),  # it cannot be in view for longer than it was open
        (_sent(sections={"what": True, "odd": False}), False),
        (_sent(sections={"what": True, "together": False}), True),
    ],
)
def test_a_decision_is_considered_once_its_words_could_be_read(
    bea: Actor, sent: str, considered: bool
) -> None:
    found = review_times.find_review_time(_decided(bea, sent), "bea")
    assert found
    assert found.reading_ms > 300 * review_times.MS_PER_WORD
    assert found.considered is considered


@pytest.mark.parametrize(
    "sent",
    [
        "",
        "[]",
        "{",
        "[" * 1_000,
        json.dumps({"opened": 1, "visible": 1}),
        _sent(opened=-1),
        _sent(opened=True),
        _sent(visible="1"),
        _sent(opened=review_times.MAX_MS + 1),
        _sent(opened=float("nan")),
        _sent(more="x" * review_times.MAX_TEXT),
    ],
)
def test_anything_else_counts_as_not_measured(bea: Actor, sent: str) -> None:
    assert review_times.find_review_time(_decided(bea, sent), "bea") is None


def test_values_are_bounded_by_the_request(bea: Actor) -> None:
    many = {f"a{'b' * at}": True for at in range(review_times.MAX_SECTIONS + 5)}
    sections = {"<script>": True, **many}
    decided = _decided(
        bea, _sent(opened=review_times.MAX_MS, seen=review_times.MAX_MS, sections=sections)
    )
    found = ReviewTime.objects.get()
    assert found.first_seen_at == found.opened_at == decided.created_at
    assert found.decided_at == decided.decided_at
    assert len(found.sections) == review_times.MAX_SECTIONS
    assert "<script>" not in found.sections


def test_an_undo_is_counted_and_retention_deletes_the_row(bea: Actor, settings: Any) -> None:
    settings.SIGNOFF_UNDO_SECONDS = 600
    decided = _decided(bea, _sent())
    undo(approval_id=decided.id, actor=bea)
    assert review_times.find_review_time(decided, "bea") is None
    again = seeds.decide(Approval.objects.get(), bea)
    review_times.record_reading(again, review_times.parse_measurement(_sent(visible=1)), bea)
    found = ReviewTime.objects.get()
    assert (found.undone, found.considered) == (1, False)
    ApprovalService().erase(run=decided.run, at=found.opened_at, head="mac:")
    assert not ReviewTime.objects.exists()


def test_a_decision_stands_though_its_reading_cannot_be_stored(
    bea: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*args: Any, **given: Any) -> None:
        raise DatabaseError("no space left")

    monkeypatch.setattr(type(ReviewTime.objects), "bulk_create", fails)
    decided = _decided(bea, _sent())
    assert read_approval(decided.id, actor=bea).status == "approved"
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")


def test_the_share_is_that_of_a_team(bea: Actor, monkeypatch: pytest.MonkeyPatch) -> None:
    dan = seeds.person("dan", *seeds.GROUPS["bea"])
    for at in range(review_times.LEAST - 1):
        _decided(bea, _sent(visible=60_000 if at % 2 else 1))
    assert review_times.compute_team_share().considered is None
    _decided(bea, _sent())
    assert review_times.compute_team_share().considered is None  # of one person
    _decided(dan, _sent())
    found = review_times.compute_team_share()
    assert (found.decisions, found.considered) == (21, 11)
    assert found.visible.total_seconds() == 60
    monkeypatch.setattr(review_times, "LEAST", 22)
    assert review_times.compute_team_share().considered is None
