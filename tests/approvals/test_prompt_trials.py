"""Trials of prompts on the page and in the API: a worker performs each once, or it fails with the reason."""

import json
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction
from django.test import Client
from django.utils import timezone

from agents.effect_handler import AgentEffects
from approvals.errors import PromptRefused, UnknownPrompt
from approvals.governance import prompt_list as trials
from approvals.governance import prompt_versions
from approvals.governance.prompt_versions import LOG
from runtime import broker
from runtime.core.values.enums import FailureCause
from runtime.errors import InvalidInput
from runtime.execution.jobs import prompt_trials
from runtime.execution.jobs.prompt_trials import STOPPED
from runtime.models import JournalEntry, PromptTrial, Run
from runtime.ports.access import Actor
from runtime.ports.effects import ModelFailure, ModelRequest, Outcome, RateLimited
from runtime.store import pool
from runtime.store.tables.jobs import KEPT_DAYS, LOST_SECONDS, RESEND_SECONDS, TRIALS
from runtime.upkeep import retention
from runtime.upkeep.sweeper import look_after_jobs
from tests.approvals.test_prompts import NAME, PAID, SECOND, Shop, desk, listens
from tests.support.pages import has, log_in, shows, text, text_of
from tests.support.seeds import Cast

ADMIN = Actor(person="admin")
PAGE, API = f"/prompts/{NAME}/1/try/", "/api/v1/prompts/trials"


@pytest.fixture
def shop(by_hand: None, cast: Cast) -> Iterator[Shop]:
    """A shop with a prompt of two versions: the text in the code, and one with which it pays more."""
    LOG.forget()
    one = Shop(desk(model=listens))
    prompt_versions.save(NAME, SECOND, actor=None)
    yield one
    one.close()


def ended_run(shop: Shop) -> UUID:
    run = shop.start()
    shop.approve(run)
    return run


def perform(
    shop: Shop, trial: UUID, drains: Callable[[], bool] = lambda: False, **more: Any
) -> PromptTrial:
    prompt_trials.perform(trial, **{"handler": shop.agents, "drains": drains, **more})
    return PromptTrial.objects.get(id=trial)


def later(seconds: int) -> None:
    """Let the stored times of trials be so much earlier."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE runtime_prompttrial SET at = at - gap, started_at = started_at - gap,"
            " ended_at = ended_at - gap FROM (SELECT %s * interval '1 second' AS gap) AS one",
            [seconds],
        )


def test_a_worker_tries_a_version_once_and_the_page_shows_both_replies(
    shop: Shop, cast: Cast
) -> None:
    client: Client = log_in(cast.admin)
    run = ended_run(shop)
    shows(client, f"/prompts/{NAME}/", PAGE)
    shows(client, PAGE, "Start a trial", hides=["The last trial"])
    for wrong in ("0", "6", "x", ""):
        has(text_of(client.post(PAGE, {"runs": wrong}), 422), "must be a number from 1 to 5")
    assert client.post(PAGE, {"runs": "2"}).status_code == 302
    live = f'data-live="trial" data-seconds="3" data-src="{PAGE}"'
    shows(client, PAGE, "waits for a worker", "Reload", live, hides=["Start a trial"])
    has(text_of(client.post(PAGE, {"runs": "2"}), 409), "has not ended")
    before = JournalEntry.objects.count(), list(PAID), Run.objects.count()
    trial = PromptTrial.objects.get()
    assert perform(shop, trial.id).state == "done"
    PromptTrial.objects.update(result="[]")
    assert perform(shop, trial.id).result == "[]"  # a second hint has no effect
    PromptTrial.objects.update(state="queued", ended_at=None)
    assert perform(shop, trial.id).runs == [run]
    assert before == (JournalEntry.objects.count(), PAID, Run.objects.count())
    words = ("3 replies, of which 1 differs", "≠ differs", "= the same", "Recorded", "Tried")
    shows(client, PAGE, *words, str(run), "Pay", "40", "50", "0.0000 US dollars", "Try it again")
    found = client.get(f"{API}/{trial.id}").json()
    assert (found["state"], found["wanted"], found["by"]) == ("done", 2, "admin")
    assert [reply["differs"] for reply in found["runs"][0]["replies"]] == [True, False, False]
    has(text(client, PAGE, live=True), *words, hides=["data-live", "<h1>", "Other trials"])


def test_earlier_trials_of_a_version_are_listed_and_shown(shop: Shop, cast: Cast) -> None:
    client: Client = log_in(cast.admin)
    first = trials.ask(NAME, 1, 1, actor=ADMIN).stored.id
    perform(shop, first)
    second = trials.ask(NAME, 1, 2, actor=ADMIN).stored.id
    PromptTrial.objects.filter(id=second).update(state="running")
    page = shows(client, PAGE, "The last trial", f'href="?trial={first}"', "1 run ·")
    has(page, "running", "Reload", hides=[f"?trial={second}", "Try it again"])
    has(shows(client, f"{PAGE}?trial={first}", "An earlier trial", f"?trial={second}"))
    shows(client, f"/prompts/{NAME}/0/try/", "Start a trial", hides=["Other trials"])
    for wrong in (f"/prompts/{NAME}/0/try/?trial={first}", f"{PAGE}?trial=x"):
        assert client.get(wrong).status_code == 404


def test_without_recorded_runs_the_page_says_what_to_do(shop: Shop, cast: Cast) -> None:
    trial = trials.ask(NAME, 1, 1, actor=ADMIN).stored.id
    assert perform(shop, trial).state == "done"
    shows(log_in(cast.admin), PAGE, "None of the last 50 ended runs used this prompt", "desk")


def test_only_admins_try_known_versions_of_prompts(shop: Shop) -> None:
    with pytest.raises(PromptRefused, match="bea may not change prompts"):
        trials.ask(NAME, 1, 1, actor=Actor(person="bea"))
    with pytest.raises(UnknownPrompt):
        trials.ask(NAME, 2, 1, actor=ADMIN)
    with pytest.raises(InvalidInput, match="from 1 to 5"):
        trials.ask(NAME, 1, True, actor=ADMIN)
    assert not PromptTrial.objects.exists()


class Silent(AgentEffects):
    """Agents whose models never reply."""

    def start_model_call(
        self, request: object, deliver: Callable[[Outcome], None], keep: object = None
    ) -> Callable[[], None]:
        return lambda: None


def test_a_trial_that_cannot_end_fails_with_the_reason(
    shop: Shop, cast: Cast, own: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[UUID, str]] = []
    monkeypatch.setattr(broker, "send_all", sent.extend)
    monkeypatch.setattr(broker, "list_queues_with_room", lambda: frozenset(broker.QUEUES))
    monkeypatch.setattr(prompt_trials, "LOOK_SECONDS", 0.01)
    ended_run(shop)
    lost = trials.ask(NAME, 1, 1, actor=ADMIN).stored.id
    look_after_jobs(own, threading.Event())
    assert sent == []  # its first hint may be on its way
    later(RESEND_SECONDS)
    look_after_jobs(own, threading.Event())
    assert sent == [(lost, "trial")]
    TRIALS.begin(own, lost)
    look_after_jobs(own, threading.Event())
    assert PromptTrial.objects.get().state == "running"
    later(LOST_SECONDS)
    look_after_jobs(own, threading.Event())
    shows(log_in(cast.admin), PAGE, "failed", TRIALS.lost)
    assert not TRIALS.save(own, lost, of=[], runs=[], result="[]")
    assert len(sent) == 1
    silent = Silent(shop.registry, lambda: None, prompts=prompt_versions.StoredPrompts())
    looks = iter([False, *[True] * 99])
    drained = perform(
        shop,
        trials.ask(NAME, 1, 1, actor=ADMIN).stored.id,
        handler=silent,
        drains=lambda: next(looks),
    )
    assert (drained.state, drained.problem) == ("failed", prompt_trials.DRAINED)
    assert STOPPED in drained.result
    later(KEPT_DAYS * 24 * 3600)
    look_after_jobs(own, threading.Event())
    assert not PromptTrial.objects.exists()


class Line:
    """The way to the models: the outcomes of the next calls, None for a reply, and the queue numbers they had."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.outcomes: list[Outcome | None] = []
        self.numbers: list[int] = []
        ask = AgentEffects.start_model_call

        def start(
            effects: AgentEffects, request: ModelRequest, deliver: Any, keep: Any = None
        ) -> Callable[[], None]:
            self.numbers.append(request.queue_number)
            if (outcome := self.outcomes.pop(0)) is None:
                return ask(effects, request, deliver, keep)
            deliver(outcome)
            return lambda: None

        monkeypatch.setattr(AgentEffects, "start_model_call", start)
        monkeypatch.setattr(prompt_trials, "MIN_WAIT_SECONDS", 0.0)


def limited(seconds: float) -> RateLimited:
    until = timezone.now() + timedelta(seconds=seconds)
    return RateLimited(model="openai:x", until=until, queue_number=7)


def replies_of(trial: PromptTrial) -> list[tuple[str, bool]]:
    """Why each reply of its one run was not tried, and whether it was."""
    replies = json.loads(trial.result)[0]["replies"]
    return [(reply["error"], bool(reply["tried"])) for reply in replies]


def test_a_trial_waits_for_a_rate_limit(
    shop: Shop, cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended_run(shop)
    line = Line(monkeypatch)
    refusal = ModelFailure(error="busy", cause=FailureCause.LIMIT, retry_after=0.0)
    line.outcomes = [refusal, limited(0.0), None] * 3
    done = perform(shop, trials.ask(NAME, 1, 1, actor=ADMIN).stored.id)
    assert replies_of(done) == [("", True)] * 3
    assert line.numbers == [0, 0, 7] * 3


def test_a_trial_that_ends_waits_no_longer(
    shop: Shop, cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended_run(shop)
    Line(monkeypatch).outcomes = [limited(2.0)]
    looks = iter([False, *[True] * 99])
    trial = trials.ask(NAME, 1, 1, actor=ADMIN).stored.id
    (error, _), *stopped = replies_of(perform(shop, trial, drains=lambda: next(looks)))
    assert error.startswith("the provider limits requests until ")
    assert stopped == [(STOPPED, False)] * 2


def test_nothing_of_an_erased_run_is_kept(shop: Shop, own: Any) -> None:
    run, other = ended_run(shop), ended_run(shop)
    trial = trials.ask(NAME, 1, 2, actor=ADMIN).stored.id
    assert set(perform(shop, trial).runs) == {run, other}
    assert retention.erase(run)
    assert not PromptTrial.objects.exists()
    trial = trials.ask(NAME, 1, 2, actor=ADMIN).stored.id
    TRIALS.begin(own, trial)
    assert not TRIALS.save(own, trial, of=[run], runs=[run], result="[]")  # erased meanwhile
    with transaction.atomic():
        PromptTrial.objects.update(runs=[run])  # it was written while the run was erased
        TRIALS.prune(pool.use_django_connection())
        assert not PromptTrial.objects.exists()
        transaction.set_rollback(True)
    with transaction.atomic():
        assert TRIALS.save(own, trial, of=[other], runs=[other], result="[]")


def test_nothing_is_stored_of_a_run_that_was_archived_meanwhile(shop: Shop) -> None:
    run = ended_run(shop)

    def archive() -> bool:
        Run.objects.filter(id=run).update(archived_at=timezone.now())
        return False

    done = perform(shop, trials.ask(NAME, 1, 1, actor=ADMIN).stored.id, drains=archive)
    assert (done.state, done.problem, done.runs) == ("failed", prompt_trials.GONE, [])
