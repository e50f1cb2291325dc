"""Prompts and their trials: signed acts that are copied, rows that are forged, and replies of a hostile model."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
from django.db import connection

from agents.effect_handler import AgentEffects
from agents.registry import Registry
from agents.sdk import prompt
from agents.sdk.scripts import call, say
from approvals import clock
from approvals.errors import PromptBroken
from approvals.governance import prompt_list, prompt_versions
from approvals.governance.prompt_versions import LOG, StoredPrompts
from approvals.models import Approval
from approvals.people import accounts
from approvals.port.adapter import ApprovalService
from approvals.rules.policy import Group
from runtime.execution.jobs.prompt_trials import perform as perform_trial
from runtime.models import PromptTrial
from runtime.ports.access import Actor
from runtime.store.tables.jobs import MAX_RUNS
from tests.approvals.test_prompts import CHILD, NAME, put_in_production
from tests.support.engine import HandDriven, start_run
from tests.support.released import released
from tests.support.seeds import Cast, decide, person
from tests.support.specs import Question, spec_of

ADMIN, BEA = Actor(person="admin"), Actor(person="bea")


class Shop(HandDriven):
    """A worker of one agent, whose prompt has a version with `well` in it."""

    def __init__(self, model: Any, **options: Any) -> None:
        text = "Serve {text}."
        prompted = {"instructions": prompt(NAME, text), "input": Question, "model": model}
        spec = spec_of("desk", **prompted, **options)
        released(spec)
        LOG.forget()
        self.number = prompt_versions.save(NAME, f"{text} Do it well.", actor=None)
        self.agents = AgentEffects(
            Registry(agents={"desk": spec}), lambda: None, prompts=StoredPrompts()
        )
        super().__init__(self.agents, ApprovalService())

    def end_runs(self, number: int) -> None:
        """Have so many runs end, with each request approved."""
        for _ in range(number):
            run = start_run("desk", {"text": "A-1"})
            while self.advance_once(run).ended_at is None:
                decide(Approval.objects.get(run=run, status="pending"), BEA)

    def perform(self, trial: Any) -> list[dict[str, Any]]:
        """Perform a trial, and return its runs."""
        perform_trial(trial, handler=self.agents, drains=lambda: False)
        stored = PromptTrial.objects.get(id=trial)
        assert stored.state == "done"
        runs: list[dict[str, Any]] = json.loads(stored.result)
        return runs


@pytest.fixture
def make_shop(by_hand: None, cast: Cast) -> Iterator[Callable[..., Shop]]:
    with ExitStack() as shops:

        def make(model: Any, **options: Any) -> Shop:
            return shops.enter_context(closing(Shop(model, **options)))

        yield make


def _reply(first: Any, second: Any) -> Any:
    """Make a model that replies with the second to the version of the trial."""
    return lambda _, info: second if "well" in info.instructions else first


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        (say("a\0b"), "contains a NUL character"),
        (say("half \ud800"), "contains half of a surrogate pair"),
        (call("look_up", text=float("nan")), "not a finite number"),
        (say("x" * (1 << 20)), "at most 1048576 are taken"),
    ],
)
def test_a_trial_keeps_only_replies_that_a_run_would_keep(
    make_shop: Callable[..., Shop], reply: Any, problem: str
) -> None:
    shop = make_shop(_reply(say("Served."), reply))
    shop.end_runs(1)
    trial = prompt_list.ask(NAME, shop.number, 1, actor=ADMIN).stored.id
    [[tried]] = [run["replies"] for run in shop.perform(trial)]
    assert tried["tried"] is None
    assert problem in tried["error"]


def test_a_trial_compares_held_answers_and_shows_neither(make_shop: Callable[..., Shop]) -> None:
    shop = make_shop(_reply(say("canary-was"), say("canary-is")), answer=True)
    shop.end_runs(1)
    for number, differs in ((0, False), (shop.number, True)):
        trial = prompt_list.ask(NAME, number, 1, actor=ADMIN).stored.id
        [[tried]] = [run["replies"] for run in shop.perform(trial)]
        assert (tried["differs"], "canary" in str(tried)) == (differs, False)


def test_a_forged_trial_tries_no_more_runs_than_one_that_was_asked_for(
    make_shop: Callable[..., Shop],
) -> None:
    shop = make_shop(_reply(say("Served."), say("Served well.")))
    shop.end_runs(MAX_RUNS + 1)
    trial = prompt_list.ask(NAME, shop.number, 1, actor=ADMIN).stored.id
    PromptTrial.objects.update(wanted=1_000_000)
    assert len(shop.perform(trial)) == MAX_RUNS


def test_a_trial_needs_the_right_of_its_admin_when_it_begins(
    make_shop: Callable[..., Shop],
) -> None:
    shop = make_shop(_reply(say("Served."), say("Served well.")))
    shop.end_runs(1)
    trial = prompt_list.ask(NAME, shop.number, 1, actor=person("anne", Group.ADMINS)).stored.id
    accounts.disable("anne", actor="admin")
    perform_trial(trial, handler=shop.agents, drains=lambda: False)
    stored = PromptTrial.objects.get()
    assert (stored.state, stored.result) == ("failed", "[]")
    assert "may not act" in stored.problem


@pytest.mark.parametrize(("name", "seq"), [(NAME, "seq + 4"), (CHILD, "seq")])
def test_a_signed_act_counts_at_its_place_alone(
    make_shop: Callable[..., Shop], name: str, seq: str
) -> None:
    """So an earlier version does not come back, and no prompt gets the text of another one."""
    make_shop(_reply(say("Served."), say("Served well.")))
    number = put_in_production("Serve {text} again.")
    assert (
        prompt_versions.build_history(LOG.rows(name=NAME), NAME, clock.read_time()).in_production
        == number
    )
    columns = "act, number, text, note, label, by, token, at, effective_at, signature, key_id"
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO approvals_promptact (name, seq, {columns})"
            f" SELECT %s, {seq}, {columns} FROM approvals_promptact",
            [name],
        )
    with pytest.raises(PromptBroken, match="is not the one that was signed"):
        LOG.rows(name=name)
