"""Cancelling and retrying all runs of a list: named before, checked again one by one, with a reason in each audit."""

import re
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from django.test import Client

from approvals.models import AuditEntry
from runtime.errors import ObjectStoreDown
from runtime.models import Run
from runtime.web.pages import runs as runs_page
from tests.support.office import Office
from tests.support.pages import has, shows, text, text_of


def _ids(page: str) -> str:
    return str(re.findall(r'name="runs" value="([^"]*)"', page)[0])


def test_the_runs_of_a_list_are_cancelled_with_one_reason(admin: Client, office: Office) -> None:
    runs, other, ended = (
        [office.start(), office.start()],
        office.start(requester="bea"),
        office.start(),
    )
    office.deny(ended, "no")
    address = "/runs/cancel-many/?q=by%3Aada"
    page = shows(admin, address, "Cancel 2 runs", *map(str, runs), hides=[str(other), str(ended)])
    sent = {"runs": _ids(page), "reason": "Wrong <batch>."}
    refused = admin.post(address, {**sent, "reason": " "})
    has(text_of(refused, 422), "Nothing was changed: the reason is required")
    has(text_of(admin.post(address, sent)), "2 runs cancelled")
    audited = AuditEntry.objects.filter(act="cancelled", detail__contains="Wrong <batch>.")
    assert set(audited.values_list("run", flat=True)) == set(runs)
    for run in runs:
        office.advance(run)
    assert set(Run.objects.filter(id__in=runs).values_list("status", flat=True)) == {"cancelled"}
    assert Run.objects.get(id=other).status == "suspended"


def test_each_run_is_checked_again(ada: Client, office: Office) -> None:
    """One is named twice, one has ended since the preview, one is of another person, one does not exist."""
    mine, over, other = office.start(), office.start(), office.start(requester="bea")
    named = ",".join(map(str, (mine, mine, over, other, uuid4())))
    office.deny(over, "no")
    answer = ada.post("/runs/cancel-many/", {"runs": named, "reason": "Stop."})
    page = has(text_of(answer), "1 run cancelled")
    assert page.count("<b>1 run</b>") + 2 * page.count("<b>2 runs</b>") == 3
    assert not AuditEntry.objects.filter(run=other, act="cancelled").exists()


def test_the_preview_counts_only_runs_that_the_person_may_act_on(
    ada: Client, bea: Client, cyril: Client, office: Office
) -> None:
    office.start(), office.failed()
    shows(ada, "/runs/cancel-many/", "Cancel 1 run<")
    shows(ada, "/runs/retry-many/", "Try again 1 run<")
    for client in (bea, cyril):  # Bea may read them
        shows(client, "/runs/cancel-many/", "None of these runs fits")
        shows(client, "/runs/retry-many/", "None of these runs fits")


@pytest.mark.parametrize(
    "problem", [ObjectStoreDown("down"), psycopg.errors.LockNotAvailable("busy")], ids=str
)
def test_one_that_does_not_answer_leaves_no_other_out(
    admin: Client, office: Office, monkeypatch: pytest.MonkeyPatch, problem: Exception
) -> None:
    runs, act = [office.start(), office.start()], runs_page.ACTS["cancel"]

    def cancel(*, run: UUID, **rest: Any) -> None:
        if run == runs[0]:
            raise problem
        act.act(run=run, **rest)

    monkeypatch.setitem(runs_page.ACTS, "cancel", replace(act, act=cancel))
    sent = {"runs": ",".join(map(str, runs)), "reason": "Stop."}
    answer = admin.post("/runs/cancel-many/", sent)
    has(text_of(answer), "1 run cancelled", "did not answer")


def test_failed_runs_are_started_again(admin: Client, office: Office) -> None:
    failed, waiting = office.failed(), office.start()
    page = shows(admin, "/runs/retry-many/", "Try again 1 run", hides=[str(waiting)])
    answer = admin.post("/runs/retry-many/", {"runs": _ids(page), "reason": "Again."})
    has(text_of(answer), "1 run started again")
    assert Run.objects.get(id=failed).status != "failed"


def test_more_runs_than_one_form_takes_are_said(
    admin: Client, office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs_page, "MAX_RUNS", 1)
    office.start(), office.start()
    page = shows(admin, "/runs/cancel-many/", "More than 1 runs match", "Cancel 1 run<")
    two = {"runs": f"{_ids(page)},{uuid4()}", "reason": "Stop."}
    for runs, words in ((two["runs"], "the runs must be 1 to 1 runs"), ("x", "must be ids")):
        has(text_of(admin.post("/runs/cancel-many/", {**two, "runs": runs}), 422), words)
    shows(admin, "/runs/cancel-many/?q=nothing", "None of these runs fits")
    text(Client(), "/runs/cancel-many/", 302)
