"""Who reads a request: those who may decide it by its rule, and not every reviewer. Lists, page and run agree."""

from datetime import timedelta

import pytest

from approvals import clock
from approvals.models import Approval
from approvals.people import absences
from approvals.rights import approval_rights
from approvals.rights.access import AccessService
from approvals.rights.principals import find_principal
from runtime.core.values.enums import GateKind
from runtime.models import Run
from runtime.ports.access import Actor
from tests.approvals.policies.office import asked, reviewers
from tests.support import seeds

pytestmark = pytest.mark.django_db

ONLY_BEA = "rules: [{name: Only bea, people: [bea]}]"
THEN_DAN = """
rules: [{name: Bea or dan, people: [bea], expires_after: 100, escalate: [{people: [dan], expires_after: 100}]}]
"""
PEOPLE = ("ada", "admin", "bea", "cora", "cyril", "dan", "eva")
REVIEWERS = {"ada", "bea", "cora", "dan", "eva"}


@pytest.fixture(autouse=True)
def _people(ada: Actor, cyril: Actor, admin: Actor) -> None:
    reviewers("bea", "cora", "dan", "eva")


def readers_of(approval: Approval) -> set[str]:
    approval.refresh_from_db()
    return {name for name in PEOPLE if _reads(name, approval)}


def _reads(name: str, approval: Approval) -> bool:
    actor = Actor(person=name)
    principal = find_principal(actor)
    readable = approval_rights.match_readable_requests(principal)
    (answer,) = {
        Approval.objects.filter(readable, pk=approval.pk).exists(),
        Run.objects.filter(
            AccessService().select_readable_runs(actor), pk=approval.run_id
        ).exists(),
        approval_rights.may_read_request(principal, approval),
    }
    return answer


def stand_in(deputy: str) -> None:
    now = clock.read_time()
    ends = now + timedelta(days=1)
    absences.announce(deputy=deputy, starts=now, ends=ends, actor=Actor(person="bea"))


def test_the_people_whom_the_rule_names_now_or_later_read_a_request() -> None:
    approval = asked(THEN_DAN, requester="cyril")
    assert readers_of(approval) == {"admin", "bea", "cyril", "dan"}


def test_a_deputy_reads_what_the_absent_person_may_decide_and_later_what_they_decided() -> None:
    approval, pending = asked(ONLY_BEA), seeds.pending()
    stand_in("cora")
    assert readers_of(pending) == {"ada", "admin", "bea", "cora"}
    seeds.decide(approval, Actor(person="cora"))
    absences.end_absence("bea", actor=Actor(person="bea"))
    assert readers_of(approval) == {"ada", "admin", "bea", "cora"}
    assert readers_of(pending) == {"ada", "admin", "bea"}


@pytest.mark.parametrize(
    "policy",
    ["rules: []", "rules: [{name: Two, stages: [{people: [bea]}, {quorum: 1}]}]"],
    ids=["no rule", "a stage of any reviewer"],
)
def test_all_reviewers_read_what_each_of_them_may_decide(policy: str) -> None:
    assert readers_of(asked(policy)) == REVIEWERS | {"admin"}


def test_all_reviewers_read_a_call_in_doubt_and_only_people_of_the_rule_the_request_before() -> (
    None
):
    approval = asked(ONLY_BEA)
    (doubt,) = seeds.opened(seeds.snapshot(approval.run_id, kind=GateKind.IN_DOUBT))
    assert readers_of(doubt) == REVIEWERS | {"admin"}
    principal = find_principal(Actor(person="eva"))
    assert not approval_rights.may_read_request(principal, approval)
