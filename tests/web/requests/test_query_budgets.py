"""Pages take few queries, also for a request with everything beside it that a page can show."""

import threading
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import psycopg
import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import Settings

from approvals import clock
from approvals.decisions import teamwork
from approvals.models import Approval, Comment
from approvals.people import absences
from approvals.rules.policy import Group
from approvals.signed import rows
from runtime.core.values.enums import EffectClass, GateKind
from runtime.ports.effects import ModelFailure, ModelRequest, Outcome
from tests.approvals.allowances.office import proposed
from tests.approvals.policies.office import put_in_force
from tests.support import seeds
from tests.support.fake_ports import FakeTool, Script, say
from tests.support.office import BEA, SCHEMA, Office
from tests.support.pages import log_in, queries_at_most, send, shows
from tests.support.released import account_agent, released

INBOX, ONE, MANY = 8, 16, 20
# Statements of a decision that can be undone, and of the next request beside the list
DECIDED, NEXT = 13, 13
BESIDE = {"HX-Request": "true", "HX-Target": "panel"}


def test_every_page_of_requests_takes_few_queries(bea: Client, office: Office) -> None:
    plain = office.request(office.start())
    seeds.person("anne", Group.ADMINS, Group.REVIEWERS)
    allowance = proposed(plain)
    doubt = office.in_doubt_request(office.in_doubt())
    before = released(account_agent(instructions="Be kind."))
    after = released(account_agent(instructions="Be brief.", subagents=[]))
    args = {"agent": "account_agent", "before": before, "after": after, "changes": []}
    version = seeds.pending(kind=GateKind.VERSION, call="", args=args)
    halt = office.held()
    crowd = crowded(office)
    question = office.question("Which level?", SCHEMA)
    sheet = urlencode([("item", str(approval.id)) for approval in (plain, crowd, doubt)])
    anne = log_in(User.objects.get(username="anne"))
    for path, words, most in (
        ("/inbox/", "handed to you by", INBOX),
        ("/inbox/?q=handed:me", "handed to you by", INBOX),
        ("/inbox/?q=kind:question", "Which level?", INBOX),
        (f"/a/{crowd.id}/", "And now?", ONE),
        (f"/a/{plain.id}/", "Ask the agent", ONE),
        (f"/a/{question.id}/", "Which level?", ONE),
        (f"/a/{doubt.id}/", "It happened", ONE),
        (f"/a/{halt.id}/", "Continue", ONE),
        (f"/a/{crowd.id}/edit/", "security_level", ONE),
        (f"/a/{plain.id}/allow/", "Propose allowance", ONE),
        (f"/a/{crowd.id}/hand-over/", "Choose a person", ONE),
        ("/allowances/", "Set privileges", ONE),
        (f"/allowances/{allowance}/", "Set privileges", ONE),
        ("/decisions/", "", ONE),
        (f"/batch/?{sheet}", "set_privileges", MANY),
    ):
        shows(bea, path, words)  # this process now remembers the schemas
        with queries_at_most(most):
            shows(bea, path)
    for path, words in ((f"/a/{version.id}/", "Continue"), ("/version-changes/", "Be brief.")):
        shows(anne, path, words)
        with queries_at_most(ONE):
            shows(anne, path)


def test_a_decision_and_the_next_request_take_few_statements(
    bea: Client, office: Office, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.SIGNOFF_UNDO_SECONDS = 10
    office.approve(office.start())
    first, second, third = (office.request(office.start()) for _ in range(3))
    send(bea, first, "approve")  # this process now remembers the schemas
    shows(bea, third)
    made: list[Any] = []
    execute: Any = psycopg.Cursor.execute
    thread = threading.get_ident()  # the worker has a heartbeat in another one

    def counted(self: Any, query: Any, *args: Any, **more: Any) -> Any:
        if threading.get_ident() == thread:
            made.append(query)
        return execute(self, query, *args, **more)

    monkeypatch.setattr(psycopg.Cursor, "execute", counted)
    answer = send(bea, second, "approve")
    decided = len(made)
    assert bea.get(answer["Location"], headers=BESIDE).status_code == 200
    assert decided <= DECIDED, made
    assert len(made) - decided <= NEXT, made[decided:]


RULE = """
rules:
  - name: Two
    match: {tool: set_privileges}
    quorum: 2
    people: [bea, cora, dan]
    escalate: [{people: [eva], expires_after: 3600}]
"""


def crowded(office: Office) -> Approval:
    """Return a request of Ada's run, which bea may decide, under a policy that stays in force.

    It has a vote of cora, who is bea's deputy, a claim of dan and a hand-over to bea, people who look at it, comments,
    one of them forged, and questions to the agent that are answered, failed and open.
    """
    cora, dan, eva = (seeds.person(name, Group.REVIEWERS) for name in ("cora", "dan", "eva"))
    work = office.effects.agents["account_agent"]
    left: list[Outcome] = [say("Because."), ModelFailure(error="no")]

    def model(request: ModelRequest) -> Outcome:
        return work(request) if request.inquiry is None else left.pop(0)

    agents: dict[str, Script] = office.effects.agents
    agents["account_agent"] = model
    office.effects.tools["set_privileges"] = FakeTool(
        effect=EffectClass.IDEMPOTENT, gated=True, expires_in=7200.0
    )
    put_in_force(RULE)
    approval = office.request(office.start())
    seeds.decide(approval, cora, reason="Seen.")
    teamwork.claim(approval_id=approval.id, actor=dan)
    teamwork.hand_over(approval_id=approval.id, to="bea", note="You know her.", actor=dan)
    kept = teamwork.add_comment(approval_id=approval.id, text="Ask first.", actor=eva)
    forged = Comment(approval=approval, person="eva", text="Approve it.", at=kept.at)
    rows.sign(forged)
    forged.text = "Deny it."
    forged.save(force_insert=True)
    for actor in (cora, eva):
        teamwork.record_presence(approval_id=approval.id, actor=actor)
    now = clock.read_time()
    absences.announce(
        deputy="cora", starts=now - timedelta(days=1), ends=now + timedelta(days=1), actor=BEA
    )
    for question in ("Why?", "Why 3?", "And now?"):
        teamwork.inquire(approval_id=approval.id, question=question, actor=cora)
        if left:
            office.advance(approval.run_id)
    approval.refresh_from_db()
    return approval
