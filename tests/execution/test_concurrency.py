"""Many runs may wait in a process; few are active at once, and a waiting run keeps no Django connection."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from runtime.execution.claim import advance
from runtime.execution.concurrency import RunSlots
from runtime.models import Run
from runtime.ports.agents import TurnBoundary
from runtime.ports.effects import ModelAnswer, ModelRequest
from runtime.store import pool
from tests.support.engine import MakeBench
from tests.support.fake_ports import FakeTool, ask

WAITING = 24  # more than the connections of pool, heartbeat and test


def test_a_waiting_run_releases_its_slot_and_acquires_one_again() -> None:
    two, waiting, go_on = RunSlots(2), threading.Event(), threading.Event()

    def wait() -> None:
        with two.acquired(), two.released():
            waiting.set()
            go_on.wait(60)

    with ThreadPoolExecutor(3) as pool:
        waits = pool.submit(wait)
        assert waiting.wait(60)
        with two.acquired(), two.acquired():  # both are free
            go_on.set()
            assert not waits.done()  # no slot is free yet
        waits.result(60)


def test_a_slot_is_kept_in_a_short_wait_if_others_are_free() -> None:
    two = RunSlots(2)
    with two.acquired():
        assert two.any_free()
        with two.acquired():
            assert not two.any_free()


def test_runs_waiting_for_models_hold_no_slot_or_connection(
    rig: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_wait, connected = threading.Barrier(WAITING), list[int]()

    def slow(request: ModelRequest) -> ModelAnswer:
        if all_wait.wait(30) == 0:  # all wait, or none of them is answered
            connected.append(_connected())
        return ask(("t", {}))

    def rule(boundary: TurnBoundary) -> str:
        return "" if Run.objects.exists() else "there are no runs"  # with Django's connection

    desk = rig({"a": slow}, t=FakeTool(gated=True))
    monkeypatch.setattr(desk.effects, "hold_reason", rule)
    bench = replace(desk.context, slots=RunSlots(2))
    runs = [desk.start("a") for _ in range(WAITING)]
    with ThreadPoolExecutor(WAITING) as pool:
        assert all(pool.map(lambda run: advance(run, bench), runs))
    assert [len(desk.open_gates(run)) for run in runs] == [1] * WAITING
    assert max(connected) < WAITING


def _connected() -> int:
    with pool.own() as own:
        row = own.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        ).fetchone()
    assert row is not None
    return int(row[0])
