"""Replays of recorded runs with hostile code: nothing but the replay is written, and it ends within its limits."""

from typing import Any
from uuid import UUID

import pytest
from django.db import transaction

from agents.sdk.scripts import Reply, Turn, call, say, script, together
from approvals.models import Approval
from approvals.port.adapter import ApprovalService
from approvals.rules.policy import Group
from runtime.control.kill_switches import engage
from runtime.execution.jobs import replays
from runtime.models import Run, RunReplay
from runtime.store import pool
from runtime.upkeep import retention
from tests.approvals.allowances.office import ANY, in_force
from tests.approvals.test_prompts import PAID, Shop, overpays
from tests.support.api_client import Caller
from tests.support.engine import start_run
from tests.support.pages import log_in
from tests.support.seeds import Cast, person
from tests.web.runs.test_replays import asked, code, perform, run, shop

__all__ = ["run", "shop"]


def rows_of_others() -> dict[str, list[str]]:
    """Each row of each table, except for the replays, and for workers, whose heartbeat goes on."""
    with pool.open_own() as own:
        tables = own.execute(
            "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition"
            " AND relnamespace = current_schema()::regnamespace"
            " AND relname NOT IN ('runtime_runreplay', 'runtime_workerprocess')"
        ).fetchall()
        return {
            table: [text for (text,) in own.execute(f"SELECT t::text FROM {table} t ORDER BY 1")]
            for (table,) in tables
        }


def test_a_replay_writes_nothing_but_itself_and_uses_no_approval(shop: Shop, run: UUID) -> None:
    person("cora", Group.REVIEWERS)
    in_force(Approval.objects.get(run=run), limits={"euros": ANY})
    allowed = start_run("desk", {"name": "A-2"})
    assert shop.advance_once(allowed).status == "completed", "by the allowance"
    for one in (run, allowed):
        for handler in (code(), code(model=overpays)):
            replay = asked(one)
            before, paid = rows_of_others(), list(PAID)
            assert perform(replay, handler).state == "done"
            after = rows_of_others()
            assert {table for table, rows in after.items() if rows != before[table]} == set()
            assert paid == PAID


REPLIES: dict[str, Any] = {
    "half an emoji": lambda: say("\ud83d"),
    "a NUL": lambda: call("pay", euros="\0"),
    "a tool of a megabyte": lambda: call("t" * 1_000_000),
    "four megabytes": lambda: say("x" * 4_000_000),
    "too many calls": lambda: together(*(call("pay", euros=number) for number in range(999))),
}


@pytest.mark.parametrize("reply", REPLIES)
def test_a_reply_that_no_run_could_store_is_named(run: UUID, cast: Cast, reply: str) -> None:
    replay = asked(run)
    stored = perform(replay, code(model=script(lambda turn: REPLIES[reply]())))
    assert (stored.state, "no reply that can be stored: " in stored.result) == ("done", True)
    assert len(stored.result) < 3_000
    assert log_in(cast.admin).get(f"/runs/{run}/replay/").status_code == 200
    assert Caller(cast.admin).get(f"/runs/{run}/replays/{replay}").status_code == 200


def test_the_script_of_a_stopped_agent_is_not_asked(run: UUID) -> None:
    answers: list[Turn] = []

    @script
    def helps(turn: Turn) -> Reply:
        answers.append(turn)
        return say("Served.")

    with transaction.atomic():
        engage(agent="desk", reason="it runs wild", actor=None)
    stored = perform(asked(run), code(model=helps))
    assert (stored.problem, answers) == (replays.STOPPED, [])


@pytest.mark.parametrize("end", [retention.archive_run, lambda _, run: retention.erase(run)])
def test_nothing_is_left_of_a_replay_whose_run_goes_meanwhile(
    run: UUID, object_store: object, end: Any
) -> None:
    replay = asked(run)

    def drains() -> bool:
        if Run.objects.filter(id=run, archived_at=None, removed_at=None).exists():
            assert end(pool.use_django_connection(), run)
        return False

    replays.perform(replay, handler=code(), approvals=ApprovalService(), drains=drains)
    assert not RunReplay.objects.exists()
