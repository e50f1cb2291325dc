"""A change of the policy: by whom, from when, and what refuses it."""

import io
from datetime import timedelta
from pathlib import Path
from threading import Event, Thread, current_thread
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from approvals import clock
from approvals.errors import PolicyBroken, PolicyRefused
from approvals.governance import policies
from approvals.models import PolicyAct
from approvals.people import accounts
from approvals.rules.judge import Facts
from approvals.rules.policy import Group, Policy
from approvals.rules.policy_text import SETTINGS
from approvals.signed import votes
from runtime.core.values.enums import Risk
from runtime.errors import InvalidInput
from runtime.ports.access import Actor
from tests.approvals.policies.office import TWO, put_in_force, reviewers
from tests.support import seeds
from tests.support.deadlines import deadline

pytestmark = pytest.mark.django_db


@pytest.fixture
def office(admin: Actor) -> None:
    """One admin, made on the command line, two reviewers and an agent."""
    reviewers("bea", "cora")
    seeds.published(input_schema={})


def current() -> Policy:
    policies.forget()
    return policies.read_current()


def test_another_admin_puts_a_change_in_force_and_its_author_cannot(office: None) -> None:
    seeds.person("anne", Group.ADMINS)
    number = policies.propose(TWO, actor="admin")
    assert current() == Policy()
    assert policies.read_versions()[0].effective_at is None  # no day of waiting puts it in force
    for other in ("admin", "bea"):
        with pytest.raises(PolicyRefused):
            policies.confirm(number, actor=other)
    policies.confirm(number, actor="anne")
    assert (current().version, current().rules[0].name) == ("2", "Two")
    with pytest.raises(PolicyRefused, match="does not wait"):
        policies.withdraw(number, actor="anne")


def test_an_admin_made_by_the_author_is_no_second(office: None) -> None:
    accounts.create_person(
        username="anne", password=seeds.PASSWORD, groups={Group.ADMINS}, actor="admin"
    )
    number = policies.propose(TWO, actor="admin")
    with pytest.raises(PolicyRefused):
        policies.confirm(number, actor="anne")


def test_the_only_admins_change_waits_a_day_in_which_it_can_be_withdrawn(office: None) -> None:
    number = policies.propose(TWO, actor="admin")
    with pytest.raises(PolicyRefused):
        policies.confirm(number, actor="admin")
    found, now = policies.read_versions(), clock.read_time()
    almost, then = (now + timedelta(hours=hours) for hours in (23.9, 24))
    assert policies.select_policy_at(found, almost) == Policy()
    assert policies.select_policy_at(found, then).version == str(number)
    policies.withdraw(number, actor="admin")
    assert policies.select_policy_at(policies.read_versions(), then) == Policy()


def test_a_version_that_waited_replaces_none_that_was_confirmed_later(office: None) -> None:
    policies.propose("rules: []", actor="admin")
    number = put_in_force(TWO)
    later = clock.read_time() + timedelta(hours=25)
    assert policies.select_policy_at(policies.read_versions(), later).version == str(number)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("rules: [{name: A, quorum: 3}]", "needs 3 people"),
        ("rules: [{name: A, groups: [finance]}]", "group finance in the rule A, which does not"),
        ("rules: [{name: A, groups: [legal], quorum: 2}]", "needs 2 people"),
        ("rules: [{name: A, people: [cyril]}]", "cyril, who may not decide"),
        ("rules: [{name: A, stages: [{people: [bea]}, {people: [bea]}]}]", "needs 2 people"),
        ("rules: [{name: A, match: {tool: refnud}}]", "tool refnud"),
        ("rules: [{name: A, match: {agent: shop}}]", "agent shop"),
        ("rules: [{name: A, quorum: 0}]", r"line 1, rules\[1\].quorum"),
        ("rules: [{name: A, when: '1'}]", r"rules\[1\].when, of the rule A: its result is neither"),
        ("rules: [{name: A, when: 'size(args)'}]", r"rules\[1\].when, of the rule A"),
        ("rules: [{name: A}, {name: B, when: 'path[0]'}]", r"rules\[2\].when, of the rule B"),
        (
            "rules: [{name: A, match: {tool: set_privileges}, when: 'args.levle > 3'}]",
            r"rules\[1\].when, of the rule A: names args.levle, which is no argument of set_privileges",
        ),
        (
            """rules: [{name: A, when: 'args["amuont"] > 3'}]""",
            "names args.amuont, which is no argument of any tool",
        ),
    ],
)
def test_a_rule_that_cannot_be_met_is_refused_when_saved(office: None, text: str, why: str) -> None:
    accounts.create_group("legal", actor=None)
    accounts.set_groups("bea", {Group.REVIEWERS, "legal"}, actor=None)
    with pytest.raises(InvalidInput, match=why):
        policies.propose(text, actor="admin")
    assert not PolicyAct.objects.exists()


def test_a_version_that_cannot_be_met_any_more_is_not_confirmed(office: None) -> None:
    number = policies.propose(TWO, actor=None)
    accounts.set_groups("cora", set(), actor=None)
    with pytest.raises(PolicyRefused, match="needs 2 people"):
        policies.confirm(number, actor=None)


def test_a_request_keeps_the_rule_that_it_was_opened_with(office: None) -> None:
    put_in_force(TWO)
    approval = seeds.pending()
    put_in_force("rules: []")
    assert seeds.decide(approval, Actor(person="bea")).status == "pending"
    assert seeds.pending().rule is None


def test_an_act_that_nobody_signed_stops_every_judgement(office: None) -> None:
    put_in_force(TWO)
    forged = PolicyAct(
        seq=3,
        act="confirmed",
        number=2,
        text="",
        by="anne",
        at=clock.read_time(),
        effective_at=None,
    )
    forged.save(force_insert=True)
    with pytest.raises(PolicyBroken):
        current()
    facts = Facts(
        tool="x", path=("a", "x"), args={}, risk=Risk.LOW, gated=False, effect="read", requester="a"
    )
    with pytest.raises(PolicyBroken):  # the engine then opens a hold
        policies.judge(facts)
    with pytest.raises(PolicyRefused, match="act 3 on the policy is not the one"):
        policies.propose(TWO, actor="admin")
    approval = seeds.in_doubt()  # its gate opens: the call has fallen into doubt already
    found = votes.read_demands(approval)
    assert found is not None
    assert (found.quorum, approval.policy_version) == (10, "unreadable")
    assert "act 3 on the policy" in found.failed


def test_commands_import_export_and_list(office: None, tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(TWO, encoding="utf-8")
    for command in (("check",), ("import",), ("import", "--confirm")):
        call_command("policy", command[0], str(file), *command[1:], stdout=io.StringIO())
    call_command("policy", "withdraw", "2", stdout=io.StringIO())
    assert [said("export"), said("export", "2")] == [TWO, TWO]
    assert [line.split("\t")[1] for line in said("list").splitlines()] == [
        "the default policy",
        "withdrawn",
        "in force",
    ]


WRONG = """\
rules:
  - name: A
    quorum: 0
    match: {risk: huge}
    escalate: [{groups: [legal], expires_after: 60}]
  - name: B
    quorm: 2
  - name: C
    match: {tool: refnud}
    when: args.levle > 3
"""


KNOWN = ("name", *dict.fromkeys(name.partition(".")[0] for name in SETTINGS))


def test_the_check_names_every_error_from_one_on(office: None, tmp_path: Path) -> None:
    """And no error that only follows from another one, such as of a step of stages that cannot be read."""
    file, out = tmp_path / "rules.yaml", io.StringIO()
    file.write_text(WRONG, encoding="utf-8")
    with pytest.raises(CommandError, match=r"^4 errors$"):
        call_command("policy", "check", str(file), stdout=out)
    assert out.getvalue().splitlines() == [
        "1. The policy has an error in line 3, rules[1].quorum: must be a whole number from 1 to 10.",
        "2. The policy has an error in line 4, rules[1].match.risk: must be low or medium or high.",
        f"3. The policy has an error in line 7, rules[2].quorm: is unknown; known are {', '.join(KNOWN)}.",
        "4. The policy names the tool refnud in the rule C, which no agent has.",
    ]


def said(*command: str) -> str:
    out = io.StringIO()
    call_command("policy", *command, stdout=out)
    return out.getvalue()


def test_a_thread_that_waits_for_postgres_holds_up_no_other(
    office: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answered, read, at = Event(), Event(), policies.LOG.read_recent_rows, clock.read_time()

    def wait_in_thread() -> Any:
        if current_thread() is not slow:
            return read()
        asked.set()
        answered.wait()
        return (), at

    monkeypatch.setattr(policies.LOG, "read_recent_rows", wait_in_thread)
    policies.forget()
    slow = Thread(target=policies.read_current)
    slow.start()
    asked.wait()
    try:
        with deadline("the policy of another thread"):
            assert policies.read_current() == Policy()
    finally:
        answered.set()
        slow.join()
