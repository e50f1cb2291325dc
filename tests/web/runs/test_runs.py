"""The list of runs, and the page of one run."""

from dataclasses import replace
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from approvals.decisions.decide import decide
from runtime.core.call_options import RetryPolicy
from runtime.models import Run
from runtime.ports.access import Actor
from runtime.ports.effects import ModelFailure, Outcome, ToolFailure
from tests.support.fake_ports import FakeTool, say
from tests.support.office import Office


def _text(client: Client, path: str) -> str:
    response = client.get(path)
    assert response.status_code == 200
    return response.content.decode()


def test_the_list_names_the_wait_of_each_run(bea: Client, office: Office) -> None:
    run = office.start(key="newhire-2026")
    page = _text(bea, "/runs/")
    assert f"/runs/{run}/" in page
    assert "newhire-2026" in page
    assert "Waiting for a person" in page
    assert "waits for a person at <bdi>set_privileges</bdi>" in page


def test_the_list_holds_only_runs_that_may_be_read(cyril: Client, suspended: UUID) -> None:
    page = _text(cyril, "/runs/")
    assert str(suspended) not in page
    assert "No runs yet" in page


def test_the_list_has_pages(ada: Client, suspended: UUID) -> None:
    for _ in range(50):
        _copy(suspended)
    first = _text(ada, "/runs/")
    assert first.count('class="row"') == 50
    cursor = first.split('href="?cursor=')[1].split('"')[0]
    second = _text(ada, f"/runs/?cursor={cursor}")
    assert second.count('class="row"') == 1
    assert ada.get("/runs/?cursor=nonsense").status_code == 404


def test_a_longer_list_takes_no_more_queries(
    bea: Client, office: Office, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    for _ in range(4):
        office.start()
    with django_assert_max_num_queries(8):
        _text(bea, "/runs/")


def test_a_waiting_run_shows_its_gate_and_its_tree(
    ada: Client, office: Office, suspended: UUID
) -> None:
    page = _text(ada, f"/runs/{suspended}/")
    assert "<bdi>set_privileges</bdi> waits for a person" in page
    assert f"/a/{office.request(suspended).id}/" in page
    rows = page[page.index("<table") : page.index("</table")]
    names = ("hr_onboarding", "account_agent", "create_account", "set_privileges")
    places = [rows.index(f"<bdi>{name}</bdi></a>") for name in names]
    assert places == sorted(places)
    assert "waits for a person to decide" in rows


def test_a_finished_run_shows_its_answer_and_who_approved(
    ada: Client, office: Office, suspended: UUID
) -> None:
    office.approve(suspended)
    page = _text(ada, f"/runs/{suspended}/")
    assert "Finished" in page
    assert '<span class="raw">New Hire is on board.</span>' in page
    assert "approved by <bdi>bea</bdi>" in page


def test_a_denied_call_says_by_whom_and_why(ada: Client, office: Office, suspended: UUID) -> None:
    request = office.request(suspended)
    decide(
        request=request.id,
        verdict="deny",
        digest=request.request_digest,
        reason="Too early.",
        actor=Actor(person="bea"),
    )
    office.advance(suspended)
    page = _text(ada, f"/runs/{suspended}/")
    assert "denied by <bdi>bea</bdi>" in page
    assert "Too early." in page


def test_a_run_in_doubt_explains_itself(ada: Client, office: Office) -> None:
    page = _text(ada, f"/runs/{office.in_doubt()}/")
    assert "In doubt: <bdi>send_welcome_mail</bdi>" in page
    assert "It may have happened, so it is not repeated" in page


def test_a_failed_run_says_why(ada: Client, office: Office) -> None:
    office.effects.agents["hr_onboarding"] = lambda request: ModelFailure(
        error="the model is <gone>"
    )
    page = _text(ada, f"/runs/{office.start()}/")
    assert "The run failed" in page
    assert "the model is &lt;gone&gt;" in page


def test_a_run_without_a_worker_says_so(ada: Client, office: Office) -> None:
    page = _text(ada, f"/runs/{office.start(advanced=False)}/")
    assert "Queued" in page
    assert "<bdi>hr_onboarding</bdi>" in page


def test_garbage_in_the_journal_is_named_and_the_rest_is_shown(
    ada: Client, office: Office, suspended: UUID
) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE runtime_journalentry SET body = '{\"not' WHERE run_id = %s AND position = 3",
            [suspended],
        )
    Run.objects.filter(id=suspended).update(status="quarantined", reason="entry 3 is not its own")
    page = _text(ada, f"/runs/{suspended}/")
    assert "Quarantined: an admin must check it" in page
    assert "entry 3 is not its own" in page
    assert "Part of the journal cannot be read" in page
    assert "<bdi>hr_onboarding</bdi>" in page


def test_only_admins_find_the_way_to_journal_and_continuation(
    ada: Client, admin: Client, suspended: UUID
) -> None:
    path = f"/runs/{suspended}/"
    for link in ("journal", "continuation"):
        assert f"/api/v1/runs/{suspended}/{link}" in _text(admin, path)
        assert f"/api/v1/runs/{suspended}/{link}" not in _text(ada, path)


def test_a_run_that_may_not_be_read_is_not_found(cyril: Client, suspended: UUID) -> None:
    assert cyril.get(f"/runs/{suspended}/").status_code == 404
    assert cyril.get(f"/runs/{uuid4()}/").status_code == 404


def _copy(run: UUID) -> None:
    row = Run.objects.get(id=run)
    row.id = uuid4()
    row.save(force_insert=True)


# States that need a look


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("waiting", "Waiting"),
        ("cancelling", "Being cancelled"),
        ("cancelled", "Cancelled"),
        ("quarantined", "Quarantined: an admin must check it"),
    ],
)
def test_every_status_has_words(ada: Client, suspended: UUID, status: str, words: str) -> None:
    Run.objects.filter(id=suspended).update(status=status)
    for path in ("/runs/", f"/runs/{suspended}/"):
        assert words in _text(ada, path)


def test_a_run_that_tries_again_says_when(ada: Client, office: Office) -> None:
    busy = ModelFailure(error="busy <now>", retryable=True, retry_after=60.0)
    office.effects.agents["hr_onboarding"] = lambda request: busy
    run = office.start()
    assert Run.objects.get(id=run).status == "waiting"
    page = _text(ada, f"/runs/{run}/")
    assert "The next try is at <time" in page
    assert "no reply" in page
    assert "busy &lt;now&gt;" in page
    assert "its model is called again" in page


def test_a_model_call_page_shows_the_model_and_its_reply(ada: Client, office: Office) -> None:
    answer = say("done")
    outcomes: list[Outcome] = [
        ModelFailure(
            error="cut",
            retryable=True,
            retry_after=0.0,
            model="openai:a",
            fallback="openai:b",
            partial="ha<lf",
        ),
        ModelFailure(error="request", model="openai:a", fallback="openai:b"),
        replace(answer, model="openai:b"),
    ]
    office.effects.agents["hr_onboarding"] = lambda request: outcomes.pop(0)
    page = _text(ada, f"/runs/{office.start()}/?step=0/m1")
    assert "no reply, the next model is called" in page
    assert page.count("model <bdi>openai:a</bdi>") == 2
    assert page.count("model <bdi>openai:b</bdi>") == 1
    assert 'as evidence only:</span><span class="raw muted">ha&lt;lf</span>' in page


def test_a_tool_that_tries_again_says_when(ada: Client, office: Office) -> None:
    busy = ToolFailure(error="busy", retryable=True, retry_after=60.0)
    slowly = RetryPolicy(attempts=3, base=60.0, ceiling=60.0)
    office.effects.tools["create_account"] = FakeTool(body=lambda request: busy, retry=slowly)
    run = office.start()
    assert "tries again at <time" in _text(ada, f"/runs/{run}/")
    page = _text(ada, f"/runs/{run}/?tab=transcript")
    assert "no result from <bdi>create_account</bdi>, tries again at <time" in page


def test_admins_are_alarmed_wherever_they_start(
    admin: Client, bea: Client, office: Office, suspended: UUID
) -> None:
    office.start()
    assert 'role="alert"' not in _text(admin, "/runs/")
    Run.objects.filter(id=suspended).update(status="quarantined", reason="entry 3 is not its own")
    for path in ("/inbox/", "/runs/"):
        assert "1 run stopped: stored data does not verify" in _text(admin, path)
        assert "cannot be verified</h2>" not in _text(bea, path)
    page = _text(admin, "/runs/?status=quarantined")
    assert page.count('class="row"') == 1
    assert str(suspended) in page
    page = _text(admin, f"/runs/{suspended}/")
    assert page.index("entry 3 is not its own") < page.index(">Agents</h2>")


def test_the_list_keeps_its_status_over_pages(ada: Client, suspended: UUID) -> None:
    for _ in range(50):
        _copy(suspended)
    page = _text(ada, "/runs/?status=suspended")
    assert 'href="?status=suspended&amp;cursor=' in page
    assert "No matching runs" in _text(ada, "/runs/?status=cancelled")
    assert ada.get("/runs/?status=nonsense").status_code == 404


# Narrowing the list down


def test_tabs_hold_the_runs_of_their_statuses(ada: Client, office: Office, suspended: UUID) -> None:
    finished = office.start()
    office.approve(finished)
    queued = office.start(advanced=False)
    for tab, run in (("people", suspended), ("finished", finished), ("working", queued)):
        page = _text(ada, f"/runs/?tab={tab}")
        assert page.count('class="row"') == 1
        assert f"/runs/{run}/" in page
        assert f'href="?tab={tab}" aria-current="page"' in page
    assert "No matching runs" in _text(ada, "/runs/?tab=failed")
    assert ada.get("/runs/?tab=nonsense").status_code == 404


def test_a_search_finds_by_agent_key_person_and_id(
    ada: Client, office: Office, suspended: UUID
) -> None:
    office.start(key="HR-77")
    assert _text(ada, "/runs/?q=hr-77").count('class="row"') == 1
    assert _text(ada, f"/runs/?q={suspended}").count('class="row"') == 1
    for text in ("ONBOARD", "ada"):
        assert _text(ada, f"/runs/?q={text}").count('class="row"') == 2
    for text in ("%25", "_x_", "stranger"):
        page = _text(ada, f"/runs/?q={text}")
        assert "No matching runs" in page
    assert 'value="stranger"' in page
    assert 'href="?tab=people&amp;q=stranger"' in page


def test_a_search_reaches_only_runs_that_may_be_read(cyril: Client, suspended: UUID) -> None:
    for text in ("ada", str(suspended)):
        assert "No matching runs" in _text(cyril, f"/runs/?q={text}")


def test_a_search_that_cannot_be_made_is_refused_and_kept(ada: Client, suspended: UUID) -> None:
    for text, why in (("x" * 201, "at most 200 characters"), ("a%00b", "not text")):
        answer = ada.get(f"/runs/?q={text}")
        assert answer.status_code == 422
        assert why in answer.content.decode()
    assert "x" * 201 in ada.get(f"/runs/?q={'x' * 201}").content.decode()


def test_pages_and_fragments_keep_tab_and_search(ada: Client, suspended: UUID) -> None:
    for _ in range(50):
        _copy(suspended)
    path = "/runs/?tab=people&q=hr"
    page = _text(ada, path)
    assert 'href="?tab=people&amp;q=hr&amp;cursor=' in page
    assert 'data-live="runs" data-src="/runs/?tab=people&amp;q=hr"' in page
    part = ada.get(path, headers={"HX-Request": "true"}).content.decode()
    assert part.count('class="row"') == 50
    assert part.strip().startswith('<div id="live" data-live="runs"')
    assert '<nav class="views"' not in part


def test_the_list_says_why_a_run_failed(ada: Client, office: Office) -> None:
    reason = "<b>gone</b>" + "x" * 1000
    office.effects.agents["hr_onboarding"] = lambda request: ModelFailure(error=reason)
    office.start()
    page = _text(ada, "/runs/?tab=failed")
    assert "&lt;b&gt;gone&lt;/b&gt;" in page
    assert "x" * 201 not in page


def test_an_empty_list_of_runs_says_how_to_begin(ada: Client, bea: Client, admin: Client) -> None:
    page = _text(ada, "/runs/")
    assert "No runs yet" in page
    assert "You see the runs that you started" in page
    assert "As an admin you see every run" in _text(admin, "/runs/")
    assert "Choose an agent" in page
    assert "Choose an agent</a>" not in _text(bea, "/runs/")
