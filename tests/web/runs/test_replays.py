"""Replays of runs on the page and in the API: a worker performs each once, or it fails with the reason."""

import threading
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import transaction

from agents.effect_handler import AgentEffects
from agents.registry import Registry
from approvals.governance.prompt_versions import StoredPrompts
from approvals.models import AuditEntry
from approvals.port.adapter import ApprovalService
from runtime import broker
from runtime.control import jobs
from runtime.control.forks import fork
from runtime.errors import AgentWithoutWorker, Forbidden
from runtime.execution.jobs import replays, runner
from runtime.models import JournalEntry, Run, RunReplay, WorkerProcess
from runtime.ports.access import Actor
from runtime.store import pool
from runtime.store.tables.jobs import REPLAYS
from runtime.upkeep import retention
from runtime.upkeep.sweeper import look_after_jobs
from tests.approvals.test_prompts import PAID, Shop, desk, overpays
from tests.support.api_client import Caller, code_of
from tests.support.engine import start_run
from tests.support.pages import has, log_in, shows, text, text_of
from tests.support.released import released
from tests.support.seeds import Cast

FAR = "9999-01-01T00:00:00Z"
ADMIN = Actor(person="admin")


@pytest.fixture
def shop(by_hand: None, cast: Cast) -> Iterator[Shop]:
    one = Shop(desk())
    yield one
    one.close()


@pytest.fixture
def run(shop: Shop) -> UUID:
    """A run whose desk paid 40 and handed over."""
    run = shop.start()
    shop.approve(run)
    return run


def code(**parts: Any) -> AgentEffects:
    """The agents of a worker that has this code today."""
    spec = desk(**parts)
    agents = {"desk": spec, "child": spec.subagents[0]}
    released(spec)
    return AgentEffects(Registry(agents=agents), lambda: None, prompts=StoredPrompts())


def asked(run: UUID) -> UUID:
    return jobs.replay_run(run=run, actor=ADMIN).id


def perform(
    replay: UUID, handler: AgentEffects, drains: Callable[[], bool] = lambda: False
) -> RunReplay:
    replays.perform(replay, handler=handler, approvals=ApprovalService(), drains=drains)
    return RunReplay.objects.get(id=replay)


def test_a_worker_replays_a_run_once_and_the_page_shows_where_it_differs(
    run: UUID, cast: Cast, admin_api: Caller
) -> None:
    client, page = log_in(cast.admin), f"/runs/{run}/replay/"
    shows(client, run, page)
    shows(log_in(cast.ada), run, hides=[page])
    shows(client, page, "Start a replay", hides=["The last replay"])
    assert client.post(page).status_code == 302
    live = f'data-live="replay" data-seconds="3" data-src="{page}"'
    shows(client, page, "waits for a worker", "Reload", live, hides=["Start a replay"])
    has(text_of(client.post(page), 409), "has not ended")
    before = JournalEntry.objects.count(), list(PAID), Run.objects.count()

    first = RunReplay.objects.get()
    assert perform(first.id, code()).state == "done"
    same = shows(client, page, "It would go the same way", "process", "Replay it again")
    has(same, "2 agents, 4 replies of scripts, 2 calls", hides=["It would go another way", live])
    RunReplay.objects.update(result="")
    assert perform(first.id, code()).result == ""  # a second hint has no effect

    sent = admin_api.post(f"/runs/{run}/replays")
    assert (sent.status_code, sent.json()["state"], sent.json()["found"]) == (202, "queued", None)
    perform(sent.json()["id"], code(model=overpays))
    found = admin_api.get(f"/runs/{run}/replays/{sent.json()['id']}").json()
    assert 0 < found["compared"] == found["entries"] == found["found"]["until"]
    step, *_ = found["found"]["divergences"]
    assert (step["recorded"], step["today"]) == (
        "calls pay with {'euros': 40}",
        "calls pay with {'euros': 50}",
    )
    assert (step["path"], step["today_reply"]["calls"]) == (
        ["desk"],
        [{"tool": "pay", "args": {"euros": 50}}],
    )
    words = (f"another way from entry {step['position']} on", f"/runs/{run}/at/{step['position']}/")
    changed = ("Agents that have changed since the run", "overpays")
    shows(client, page, *words, "Recorded", "40", "Today", "50", f"?replay={first.id}", *changed)
    shows(client, f"{page}?replay={first.id}", "An earlier replay", "the same way")
    has(text(client, page, live=True), *words, hides=["<h1>"])
    assert before == (JournalEntry.objects.count(), PAID, Run.objects.count())
    audited = AuditEntry.objects.filter(run=run, act="replayed")
    assert [one.actor for one in audited] == ["admin", "admin"]
    assert client.get(f"{page}?replay=x").status_code == 404


def test_a_replay_that_cannot_end_says_why(
    run: UUID, cast: Cast, own: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, page = log_in(cast.admin), f"/runs/{run}/replay/"
    without = AgentEffects(Registry(agents={}), lambda: None)
    replay = asked(run)
    other = WorkerProcess.objects.create(
        id=uuid4(), host="a", process=1, agents={"desk": "f"}, lease_until=FAR
    )
    assert perform(replay, without).state == "queued"  # for the other one
    other.delete()
    assert "No live worker has the agent desk" in perform(replay, without).problem
    looks = iter([False, True, True])
    assert perform(asked(run), code(), lambda: next(looks)).problem == replays.DRAINED
    shows(client, page, "entries 1 to 1", "the entries after 1", hides=["the same way"])
    with monkeypatch.context() as patched:
        patched.setattr(replays, "MAX_SECONDS", -1.0)
        assert perform(asked(run), code()).problem == replays.TOO_LONG
    with monkeypatch.context() as patched:
        patched.setattr(AgentEffects, "describe", lambda *_, **__: 1 / 0)
        assert perform(asked(run), code()).state == "done"
        shows(client, page, "the agent is held: ZeroDivisionError")
    with monkeypatch.context() as patched:
        patched.setattr(AgentEffects, "is_scripted", lambda *_: 1 / 0)
        assert perform(asked(run), code()).problem == runner.BROKEN
    waiting = asked(run)
    with replays._replaying:
        assert perform(waiting, code()).state == "queued"  # the process is at another one
    sent: list[tuple[UUID, str]] = []
    monkeypatch.setattr(broker, "send_all", sent.extend)
    monkeypatch.setattr(broker, "list_queues_with_room", lambda: frozenset(broker.QUEUES))
    RunReplay.objects.filter(id=waiting).update(at="2026-01-01T00:00:00Z")
    look_after_jobs(own, threading.Event())
    assert sent == [(waiting, "replay")]
    JournalEntry.objects.filter(run_id=run, position=3).delete()
    assert "cannot be read: journal entry 3 is missing" in perform(waiting, code()).problem


def test_a_run_without_contents_or_worker_is_not_replayed(
    shop: Shop, run: UUID, cast: Cast, admin_api: Caller, own: Any
) -> None:
    client, page = log_in(cast.admin), f"/runs/{run}/replay/"
    with pytest.raises(Forbidden):
        jobs.replay_run(run=run, actor=Actor(person="bea"))
    new = start_run("desk", {"name": "A-2"})
    other, replay = asked(new), asked(run)
    assert perform(other, code()).problem == replays.EMPTY
    assert code_of(admin_api.get(f"/runs/{run}/replays/{other}")) == (404, "not_found")
    REPLAYS.begin(own, replay)
    with transaction.atomic():
        Run.objects.filter(id=run).update(removed_at="2026-01-01T00:00:00Z")
        REPLAYS.save(
            pool.use_django_connection(), replay, of=[run], result='{"begins": 1}'
        )  # erased meanwhile
        assert RunReplay.objects.get(id=replay).result == ""
        REPLAYS.prune(pool.use_django_connection())  # it was written while the run was erased
        assert not RunReplay.objects.filter(id=replay).exists()
        transaction.set_rollback(True)
    WorkerProcess.objects.create(id=uuid4(), host="a", process=1, agents={"child": "f"})
    with pytest.raises(AgentWithoutWorker, match="No live worker has the agent desk"):
        asked(run)
    assert retention.erase(run)
    assert not RunReplay.objects.filter(run=run).exists()
    shows(client, page, "nothing is left to compare", hides=["Start a replay"])
    assert code_of(admin_api.post(f"/runs/{run}/replays")) == (409, "nothing_to_replay")


def test_a_fork_says_that_agents_had_begun_before_it(run: UUID, cast: Cast) -> None:
    new = fork(run=run, position=2, actor=Actor(person="ada"))
    perform(asked(new), code(model=overpays))
    words = ("the instructions of 1 agent that had begun before", "Agents that have changed")
    shows(log_in(cast.admin), f"/runs/{new}/replay/", *words)
