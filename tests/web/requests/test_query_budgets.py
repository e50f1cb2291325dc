"""Pages take few queries, also for a request with everything beside it that a page can show."""

import threading
from typing import Any
from urllib.parse import urlencode

import psycopg
import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import Settings

from approvals.rules.policy import Group
from runtime.core.values.enums import GateKind
from tests.approvals.allowances.office import proposed
from tests.support import seeds
from tests.support.crowd import crowded
from tests.support.office import SCHEMA, Office
from tests.support.pages import log_in, queries_at_most, send, shows
from tests.support.released import account_agent, released

INBOX, ONE, MANY = 8, 16, 20
DECIDED, NEXT = (
    13,
    13,
)  # statements of a decision that can be undone, and of the next request beside the list
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
