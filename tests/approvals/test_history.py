"""The history of decisions: its filters and readers, and the cost of a page."""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.db import connection

from approvals import clock
from approvals.decisions.decide import undo
from approvals.models import Approval, ApprovalOutcome, Vote
from approvals.people import absences
from approvals.reads import filters, history
from approvals.rights.principals import find_principal
from approvals.signed import rows as signed_rows
from runtime.core.values.enums import Risk
from runtime.errors import InvalidInput
from runtime.keyring import sealing
from runtime.keyring.sealing import REDACTED
from runtime.ports.access import Actor
from tests.approvals.policies.office import asked, reviewers
from tests.support import seeds
from tests.support.costs import blocks_of_approvals

pytestmark = pytest.mark.django_db

BERLIN = ZoneInfo("Europe/Berlin")


def listed(actor: Actor, *, zone: Any = UTC, **given: str) -> list[str]:
    """The verdicts of the first page."""
    return [item.status for item in page(actor, zone=zone, **given).items]


def page(actor: Actor, *, zone: Any = UTC, **given: str) -> history.HistoryPage:
    return history.read_page(find_principal(actor), filters.read_criteria(given, zone))


@pytest.fixture
def decided(ada: Actor, bea: Actor, cyril: Actor) -> list[Approval]:
    """Approved and denied runs of Ada's by Bea, and an approved one of Cyril's by Ada."""
    rows = [seeds.pending(risk=Risk.LOW), seeds.pending(), seeds.pending(requester="cyril")]
    seeds.decide(rows[0], bea)
    seeds.decide(rows[1], seeds.bearer(bea, "approvals:decide"), "deny", "too much")
    seeds.decide(rows[2], ada, reason="fine")
    seeds.pending()  # not decided
    stored = Approval.objects.get(id=rows[2].id)
    assert stored.decided_at is not None
    ApprovalOutcome.objects.create(
        approval=stored,
        run_id=stored.run_id,
        frame="0",
        call="c1.0",
        outcome="failed",
        position=3,
        decided_at=stored.decided_at,
    )
    return rows


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, ["approved", "denied", "approved"]),
        ({"person": "bea"}, ["denied", "approved"]),
        ({"by": "cyril"}, ["approved"]),
        ({"tool": "set_privileges", "verdict": "denied"}, ["denied"]),
        ({"tool": "set_priv"}, []),
        ({"agent": "hr_onboarding"}, ["approved", "denied", "approved"]),
        ({"agent": "account_agent", "person": "ada"}, ["approved"]),
        ({"agent": "set_privileges"}, []),
        ({"risk": "LOW"}, ["approved"]),
        ({"outcome": "failed"}, ["approved"]),
        ({"outcome": "done"}, []),
        ({"q": "verdict:denied new.hire"}, ["denied"]),
        ({"q": 'person:"bea" tool:set_privileges nowhere'}, []),
        ({"since": "2001-01-01", "until": "2001-01-02"}, []),
    ],
    ids=str,
)
def test_filters(
    decided: list[Approval], bea: Actor, given: dict[str, str], found: list[str]
) -> None:
    assert listed(bea, **given) == found


def test_rows_say_who_how_and_how_long(decided: list[Approval], bea: Actor) -> None:
    ours, denied, approved = page(bea).items
    assert (ours.decided_by, ours.outcome, ours.position) == ("ada", "failed", 3)
    assert (denied.reason, denied.channel, approved.channel) == ("too much", "api", "page")
    assert denied.seconds_to_decide is not None
    assert denied.seconds_to_decide >= 0
    assert [row.tampered for row in (ours, denied, approved)] == [None, None, None]
    Approval.objects.filter(id=denied.id).update(reason="fine")
    assert [row.id for row in page(bea).items if row.tampered] == [denied.id]


def test_each_reader_gets_what_they_may_read(
    decided: list[Approval], ada: Actor, cyril: Actor, admin: Actor
) -> None:
    assert [len(listed(who)) for who in (ada, admin, cyril)] == [3, 3, 1]
    assert listed(cyril, person="bea") == listed(cyril, outcome="done") == []
    assert history.read_page(None, filters.read_criteria({}, UTC)).items == ()


def test_an_undone_decision_leaves_the_history(bea: Actor, settings: Any) -> None:
    settings.SIGNOFF_UNDO_SECONDS = 60
    approval = seeds.pending(risk=Risk.LOW)
    seeds.decide(approval, bea)
    assert listed(bea) == ["approved"]
    undo(approval_id=approval.id, actor=bea)
    assert listed(bea) == []
    assert Approval.objects.get(id=approval.id).channel is None


@pytest.mark.parametrize(
    ("zone", "day", "found"),
    [
        (BERLIN, "2026-03-29", 2),
        (BERLIN, "2026-03-30", 1),
        (UTC, "2026-03-29", 2),
        (UTC, "2026-03-28", 1),
    ],
    ids=str,
)
def test_days_are_those_of_the_zone(
    decided: list[Approval], bea: Actor, zone: Any, day: str, found: int
) -> None:
    """Of a day with 23 hours in Berlin: its first moment, its last, and the one after it."""
    first = datetime(2026, 3, 28, 23, tzinfo=UTC)
    for approval, at in zip(decided, (0, 23 * 3600 - 1, 23 * 3600), strict=True):
        Approval.objects.filter(id=approval.id).update(decided_at=first + timedelta(seconds=at))
    assert len(listed(bea, zone=zone, since=day, until=day)) == found


@pytest.mark.parametrize(
    ("given", "field", "why"),
    [
        ({"q": "garbage:xyz"}, "q", "no filter garbage:"),
        ({"q": "risk:none"}, "risk", "one of low, medium, high"),
        ({"q": "person:a person:b"}, "q", "person: more than once"),
        ({"q": "since:tuesday"}, "since", "must be a day"),
        ({"until": "9999-12-31"}, "until", "must be a day"),
        ({"verdict": "pending"}, "verdict", "one of approved"),
        ({"tool": "a\0b"}, "tool", "null character"),
        ({"person": "x" * 201}, "person", "at most 200"),
        ({"q": "x " * 13}, "q", "at most 12 words"),
    ],
    ids=str,
)
def test_a_wrong_filter_is_named(given: dict[str, str], field: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=why) as caught:
        filters.read_criteria(given, UTC)
    assert caught.value.field == field


# --- Several people, deputies and edits

BEA_AND_EVA = "rules: [{name: Both, quorum: 2, people: [bea, eva]}]"


def test_each_voter_is_named_and_found(ada: Actor) -> None:
    bea, cora, eva = reviewers("bea", "cora", "eva")
    approval = asked(BEA_AND_EVA)
    starts = clock.read_time() - timedelta(days=1)
    absences.announce(deputy="cora", starts=starts, ends=starts + timedelta(days=7), actor=bea)
    seeds.decide(approval, cora, reason="in her place")
    seeds.decide(approval, eva)
    (row,) = page(eva).items
    voters = [(voter.person, voter.absent, voter.reason) for voter in row.voters]
    assert voters == [("cora", "bea", "in her place"), ("eva", None, "")]
    assert {name: listed(eva, person=name) for name in ("bea", "cora", "eva", "ada")} == {
        "bea": ["approved"],
        "cora": ["approved"],
        "eva": ["approved"],
        "ada": [],
    }


def test_a_deputy_is_named_and_found_with_the_absent_person(ada: Actor) -> None:
    bea, cora = reviewers("bea", "cora")
    approval = asked("rules: [{name: Only bea, people: [bea]}]")
    starts = clock.read_time() - timedelta(days=1)
    absences.announce(deputy="cora", starts=starts, ends=starts + timedelta(days=7), actor=bea)
    seeds.decide(approval, cora, "deny", "too much")
    (row,) = page(cora).items
    assert (row.decided_by, row.decided_for) == ("cora", "bea")
    assert listed(cora, person="bea") == listed(cora, person="cora") == ["denied"]


def test_a_denial_names_the_votes_before_it(ada: Actor) -> None:
    bea, eva = reviewers("bea", "eva")
    approval = asked(BEA_AND_EVA)
    seeds.decide(approval, bea)
    seeds.decide(approval, eva, "deny", "too much")
    (row,) = page(bea, person="bea").items
    assert (row.decided_by, [voter.person for voter in row.voters]) == ("eva", ["bea"])


@pytest.mark.parametrize("change", [{"reason": "forged"}, {"person": "cyril"}, None], ids=str)
def test_a_changed_or_deleted_vote_is_named(ada: Actor, change: dict[str, str] | None) -> None:
    bea, eva = reviewers("bea", "eva")
    approval = asked(BEA_AND_EVA)
    for person in (bea, eva):
        seeds.decide(approval, person)
    rows = Vote.objects.filter(approval=approval, person="bea")
    if change is None:
        rows.delete()
    else:
        rows.update(**change)
    (row,) = page(bea).items
    assert row.tampered


def test_an_edit_has_its_own_verdict_and_both_values(ada: Actor, bea: Actor) -> None:
    args = {"username": "new.hire", "security_level": 3}
    seeds.decide(seeds.pending(args=args), bea)
    approval = seeds.pending(args=args)
    seeds.decide(approval, bea, "edit", arguments={**args, "security_level": 2})
    assert [row.id for row in page(bea, verdict="edited").items] == [approval.id]
    assert len(page(bea, verdict="approved").items) == 1
    (row, _) = page(bea).items
    assert row.verdict == "edited"
    assert [(edit.path, edit.before, edit.after) for edit in row.edits] == [
        ("security_level", 3, 2)
    ]


def test_an_edit_of_a_held_argument_is_listed_without_its_values(bea: Actor) -> None:
    drafts = {"username": "draft", "security_level": 3}
    args = {name: sealing.seal_arg("set_privileges", name, value) for name, value in drafts.items()}
    approval = seeds.pending(args=args, risk=Risk.LOW)
    seeds.decide(approval, bea, "edit", arguments={**drafts, "username": "better"})
    (row,) = page(bea).items
    assert [(edit.path, edit.before, edit.after) for edit in row.edits] == [
        ("username", REDACTED, REDACTED)
    ]


# --- Many decisions

READERS = ("bea", "cyril")  # Cyril may read only requests of runs that he started
FILTERS: list[dict[str, str]] = [
    {},
    {"person": "bea"},
    {"person": "eva"},
    {"person": "rare"},
    {"by": "ada"},
    {"tool": "set_privileges"},
    {"tool": "rare"},
    {"agent": "account_agent"},
    {"agent": "rare"},
    {"outcome": "failed"},
    {"verdict": "denied"},
    {"risk": "low", "person": "bea"},
    {"since": "2026-11-24", "until": "2026-11-24"},
    {"q": "nowhere"},
]


def seeded(count: int) -> None:
    """Add decisions, one a minute before the last, each third with an outcome, and most with a vote of Eva's."""
    made = ("id", "gate", "decided_at", "voted")
    names = [name for name in signed_rows.list_columns(Approval) if name not in made]
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO approvals_approval ({', '.join((*made, *names))})"
            f" SELECT gen_random_uuid(), gen_random_uuid(), '2026-11-26'::timestamptz - n * interval '1 minute',"
            f" CASE n %% 4 WHEN 0 THEN '[]'::jsonb ELSE '[\"eva\"]' END, {', '.join(names)}"
            f" FROM (SELECT * FROM approvals_approval WHERE status = 'approved' LIMIT 1) AS one,"
            " generate_series((SELECT count(*) FROM approvals_approval), %s) AS n",
            [count],
        )
        cursor.execute(
            "INSERT INTO approvals_approvaloutcome SELECT id, run_id, frame, call, 'failed', 1, decided_at"
            " FROM approvals_approval WHERE extract(minute FROM decided_at)::int % 3 = 0 ON CONFLICT DO NOTHING"
        )
        cursor.execute("ANALYZE approvals_approval")
        cursor.execute("ANALYZE approvals_approvaloutcome")


def blocks(actor: Actor, given: dict[str, str]) -> int:
    """Count the blocks that Postgres looks at for one page."""
    principal, chosen = find_principal(actor), filters.read_criteria(given, UTC)
    return blocks_of_approvals(lambda: history.read_page(principal, chosen))


@pytest.mark.slow
def test_a_page_costs_the_same_beside_five_times_as_many_decisions(
    bea: Actor, cyril: Actor
) -> None:
    seeds.decide(seeds.pending(), bea)
    cast, costs = {"bea": bea, "cyril": cyril}, list[dict[str, int]]()
    for count in (8_000, 40_000):
        seeded(count)
        costs.append(
            {f"{who} {given}": blocks(cast[who], given) for who in READERS for given in FILTERS}
        )
    few, many = costs
    assert {key: (few[key], cost) for key, cost in many.items() if cost > 1.5 * few[key] + 20} == {}
    assert max(many.values()) < 5 * history.SCANNED
