"""The list of runs, and the page of one run."""

from dataclasses import replace
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from runtime.core.call_options import RetryPolicy
from runtime.models import Run
from runtime.ports.effects import ModelFailure, Outcome, ToolFailure
from tests.support.fake_ports import FakeTool, say
from tests.support.office import Office
from tests.support.pages import has, in_order, shows, text

NO_MATCH = "No matching runs"


@pytest.fixture
def many(suspended: UUID) -> None:
    """Ada's run, and 50 copies of it."""
    row = Run.objects.get(id=suspended)
    for _ in range(50):
        row.id = uuid4()
        row.save(force_insert=True)


def _rows(client: Client, query: str) -> int:
    return text(client, f"/runs/{query}").count('class="row"')


def test_the_list_names_the_wait_of_each_run(
    bea: Client,
    cyril: Client,
    office: Office,
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    run = office.start(key="newhire-2026")
    waits = "waits for a person at <bdi>set_privileges</bdi>"
    shows(bea, "/runs/", f"/runs/{run}/", "newhire-2026", "Waiting for a person", waits)
    shows(cyril, "/runs/", "No runs yet", hides=[str(run)])
    for _ in range(3):
        office.start()
    with django_assert_max_num_queries(8):
        text(bea, "/runs/")


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize("query", ["", "status=suspended", "tab=people&q=hr"])
def test_the_list_has_pages(ada: Client, query: str) -> None:
    escaped = query.replace("&", "&amp;")
    kept = f"{escaped}&amp;" if query else ""
    first = shows(ada, f"/runs/?{query}", f'href="?{kept}cursor=')
    cursor = first.split(f'href="?{kept}cursor=')[1].split('"')[0]
    assert (first.count('class="row"'), _rows(ada, f"?{query}&cursor={cursor}")) == (50, 1)
    part = text(ada, f"/runs/?{query}", live=True)
    assert part.count('class="row"') == 50
    assert part.strip().startswith('<div id="live" data-live="runs"')
    source = f'data-src="/runs/?{escaped}"' if query else 'data-src="/runs/"'
    has(part, source, hides=['<nav class="views"'])


@pytest.mark.parametrize("query", ["cursor=nonsense", "status=nonsense", "tab=nonsense"])
def test_a_list_that_is_none_is_not_found(ada: Client, query: str) -> None:
    text(ada, f"/runs/?{query}", 404)


def test_a_waiting_run_shows_its_gate_and_its_tree(
    ada: Client, admin: Client, office: Office, suspended: UUID
) -> None:
    gate = "<bdi>set_privileges</bdi> waits for a person"
    page = shows(ada, suspended, gate, f"/a/{office.request(suspended).id}/")
    rows = page[page.index("<table") : page.index("</table")]
    names = ("hr_onboarding", "account_agent", "create_account", "set_privileges")
    in_order(rows, *(f"<bdi>{name}</bdi></a>" for name in names))
    has(rows, "waits for a person to decide")
    in_order(page[page.index('class="tree') :], *(f"<bdi>{name}</bdi></a>" for name in names[:2]))
    links = [f"/api/v1/runs/{suspended}/{link}" for link in ("journal", "continuation")]
    has(page, hides=links)
    shows(admin, suspended, *links)


def test_a_finished_run_shows_its_answer_and_who_approved(
    ada: Client, office: Office, suspended: UUID
) -> None:
    office.approve(suspended)
    answer = '<span class="raw">New Hire is on board.</span>'
    shows(ada, suspended, "Finished", answer, "approved by <bdi>bea</bdi>")


def test_a_denied_call_says_by_whom_and_why(ada: Client, office: Office, suspended: UUID) -> None:
    office.deny(suspended, "Too early.")
    shows(ada, suspended, "denied by <bdi>bea</bdi>", "Too early.")


def test_a_run_in_doubt_explains_itself(ada: Client, office: Office) -> None:
    why = "It may have happened, so it is not repeated"
    shows(ada, office.in_doubt(), "In doubt: <bdi>send_welcome_mail</bdi>", why)


def test_a_failed_run_says_why(ada: Client, office: Office) -> None:
    reason = "the model is <gone>" + "x" * 1000
    office.effects.agents["hr_onboarding"] = lambda request: ModelFailure(error=reason)
    shows(ada, office.start(), "The run failed", "the model is &lt;gone&gt;")
    shows(ada, "/runs/?tab=failed", "the model is &lt;gone&gt;", hides=["x" * 201])


def test_a_run_without_a_worker_says_so(ada: Client, office: Office) -> None:
    shows(ada, office.start(advanced=False), "Queued", "<bdi>hr_onboarding</bdi>")


def test_garbage_in_the_journal_is_named_and_the_rest_is_shown(
    ada: Client, suspended: UUID
) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE runtime_journalentry SET body = '{\"not' WHERE run_id = %s AND position = 3",
            [suspended],
        )
    Run.objects.filter(id=suspended).update(status="quarantined", reason="entry 3 is not its own")
    why = ("Quarantined: an admin must check it", "entry 3 is not its own")
    unread = "Part of the journal cannot be read"
    shows(ada, suspended, *why, unread, "<bdi>hr_onboarding</bdi>")


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
    for place in ("/runs/", suspended):
        shows(ada, place, words)


def test_a_run_that_tries_again_says_when(ada: Client, office: Office) -> None:
    busy = ModelFailure(error="busy <now>", retryable=True, retry_after=60.0)
    office.effects.agents["hr_onboarding"] = lambda request: busy
    run = office.start()
    assert Run.objects.get(id=run).status == "waiting"
    why = ("no reply", "busy &lt;now&gt;", "its model is called again")
    shows(ada, run, "The next try is at <time", *why)


def test_a_model_call_page_shows_the_model_and_its_reply(ada: Client, office: Office) -> None:
    tried = ModelFailure(error="request", model="openai:a", fallback="openai:b")
    outcomes: list[Outcome] = [
        replace(tried, error="cut", retryable=True, retry_after=0.0, partial="ha<lf"),
        tried,
        replace(say("done"), model="openai:b"),
    ]
    office.effects.agents["hr_onboarding"] = lambda request: outcomes.pop(0)
    partial = 'as evidence only:</span><span class="raw muted">ha&lt;lf</span>'
    path = f"/runs/{office.start()}/?step=0/m1"
    page = shows(ada, path, "no reply, the next model is called", partial)
    counts = [page.count(f"model <bdi>openai:{name}</bdi>") for name in "ab"]
    assert counts == [2, 1]


def test_a_tool_that_tries_again_says_when(ada: Client, office: Office) -> None:
    busy = ToolFailure(error="busy", retryable=True, retry_after=60.0)
    slowly = RetryPolicy(attempts=3, base=60.0, ceiling=60.0)
    office.effects.tools["create_account"] = FakeTool(body=lambda request: busy, retry=slowly)
    run = office.start()
    shows(ada, run, "tries again at <time")
    said = "no result from <bdi>create_account</bdi>, tries again at <time"
    shows(ada, f"/runs/{run}/?tab=transcript", said)


def test_admins_are_alarmed_wherever_they_start(
    admin: Client, bea: Client, office: Office, suspended: UUID
) -> None:
    office.start()
    shows(admin, "/runs/", hides=['role="alert"'])
    Run.objects.filter(id=suspended).update(status="quarantined", reason="entry 3 is not its own")
    for path in ("/inbox/", "/runs/"):
        shows(admin, path, "1 run stopped: stored data does not verify")
        shows(bea, path, hides=["cannot be verified</h2>"])
    assert shows(admin, "/runs/?status=quarantined", str(suspended)).count('class="row"') == 1
    in_order(text(admin, suspended), "entry 3 is not its own", ">Agents</h2>")


# Narrowing the list down


def test_tabs_hold_the_runs_of_their_statuses(ada: Client, office: Office, suspended: UUID) -> None:
    finished = office.start()
    office.approve(finished)
    queued = office.start(advanced=False)
    of_tabs = {"people": suspended, "finished": finished, "working": queued}
    labels = {"people": "Waiting for people", "finished": "Finished", "working": "Working"}
    for tab, run in of_tabs.items():
        current = f'href="?tab={tab}" aria-current="page">{labels[tab]}</a>'
        page = shows(ada, f"/runs/?tab={tab}", f"/runs/{run}/", current)
        assert page.count('class="row"') == 1
    for query in ("tab=failed", "status=cancelled"):
        shows(ada, f"/runs/?{query}", NO_MATCH)


def test_a_search_finds_by_agent_key_person_and_id(
    ada: Client, cyril: Client, office: Office, suspended: UUID
) -> None:
    office.start(key="HR-77")
    searches = {"hr-77": 1, str(suspended): 1, "ONBOARD": 2, "ada": 2}
    assert {text: _rows(ada, f"?q={text}") for text in searches} == searches
    for words in ("%25", "_x_"):
        shows(ada, f"/runs/?q={words}", NO_MATCH)
    kept = ('value="stranger"', 'href="?tab=people&amp;q=stranger"')
    shows(ada, "/runs/?q=stranger", NO_MATCH, *kept)
    for words in ("ada", str(suspended)):  # he may read neither
        shows(cyril, f"/runs/?q={words}", NO_MATCH)


@pytest.mark.parametrize(
    ("q", "why"), [("x" * 201, "at most 200 characters"), ("a%00b", "not text")]
)
def test_a_search_that_cannot_be_made_is_refused_and_kept(ada: Client, q: str, why: str) -> None:
    shows(ada, f"/runs/?q={q}", why, q.partition("%")[0], status=422)


def test_an_empty_list_of_runs_says_how_to_begin(ada: Client, bea: Client, admin: Client) -> None:
    shows(ada, "/runs/", "No runs yet", "You see the runs that you started", "Choose an agent")
    shows(admin, "/runs/", "As an admin you see every run")
    shows(bea, "/runs/", hides=["Choose an agent</a>"])
