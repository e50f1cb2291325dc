"""The broker is emptied, killed or frozen at the moment of the decision, and everything else is replaced."""

import socket
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import redis

from config.local.http_client import request
from tests.support import processes
from tests.support.people import Office, until
from tests.support.stack import Stack

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def office(sandbox: Path) -> Iterator[Office]:
    with Stack(sandbox / "broker", ABEYANCE_LEASE_SECONDS="2") as stack:
        yield Office(stack)


def test_a_broker_emptied_at_the_decision_loses_nothing(office: Office) -> None:
    run = _suspended(office, "emptied")
    worker = processes.of(office.stack, "worker").process
    worker.suspend()  # or it would be faster than we are
    with redis.Redis.from_url(worker.environ()["REDIS_URL"]) as broker:
        assert office.decide("bea", office.approval(run), "approve")[0] == 200
        until(lambda: broker.llen("resumed") or None, "the hint to arrive")
        broker.flushall()
    worker.resume()
    _finished_once(office, run, "emptied")


def test_a_broker_killed_at_the_decision_loses_nothing(office: Office) -> None:
    run = _suspended(office, "killed")
    broker = processes.of(office.stack, "broker").process
    broker.kill()
    assert office.decide("bea", office.approval(run), "approve")[0] == 200
    _finished_once(office, run, "killed")
    assert not psutil.pid_exists(broker.pid)  # the launcher has started another one


def test_a_broker_frozen_at_the_decision_delays_no_answer(office: Office) -> None:
    run = _suspended(office, "frozen")
    broker = processes.of(office.stack, "broker").process
    broker.suspend()
    try:
        assert office.decide("bea", office.approval(run), "approve")[0] == 200
        assert broker.status() == psutil.STATUS_STOPPED  # it answered without the broker
        assert office.roles("frozen") == []
    finally:
        broker.resume()
    _finished_once(office, run, "frozen")


def test_a_broker_that_is_full_at_the_decision_loses_nothing(office: Office) -> None:
    """A full broker refuses writes: decisions and the worker go on without it."""
    run = _suspended(office, "full")
    worker = processes.of(office.stack, "worker")
    with redis.Redis.from_url(worker.process.environ()["REDIS_URL"]) as broker:
        before = broker.config_get("maxmemory*")
        broker.config_set("maxmemory-policy", "noeviction")
        broker.config_set("maxmemory", 1)
        try:
            with pytest.raises(redis.ResponseError, match="maxmemory"):
                broker.rpush("resumed", "anything")
            assert office.decide("bea", office.approval(run), "approve")[0] == 200
            assert office.run(run)["status"] != "completed"  # no worker gets a hint
        finally:
            for name, value in before.items():
                broker.config_set(name, value)
    _finished_once(office, run, "full")
    assert worker.process.is_running()


def test_another_web_process_decides_and_another_worker_resumes(office: Office) -> None:
    run = _suspended(office, "handed")
    stack = office.stack
    shown = office.approval(run)
    first = processes.of(stack, "worker").process
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    first.suspend()
    try:
        with (
            processes.another(stack, "web", "web2", bind=f"127.0.0.1:{port}"),
            processes.another(stack, "worker", "worker2") as second,
        ):
            path = f"/api/v1/approvals/{shown['id']}/decision"
            body = {"verdict": "approve", "digest": shown["digest"], "reason": ""}
            token = stack.credentials["users"]["bea"]["token"]
            other = f"http://127.0.0.1:{port}"
            assert request(other, "POST", path, token=token, body=body)[0] == 200
            _finished_once(office, run, "handed")
            assert second.process.is_running()
            assert first.status() == psutil.STATUS_STOPPED
    finally:
        first.resume()


def test_a_decision_outlives_a_restart_of_everything(office: Office) -> None:
    """Suspended by one set of processes, decided on and resumed by another."""
    run = _suspended(office, "restarted")
    shown = office.approval(run)
    before = {one.pid for one in office.stack.processes()}
    office.stack.restart()
    assert before.isdisjoint(one.pid for one in office.stack.processes())
    assert office.decide("bea", shown, "approve")[0] == 200
    _finished_once(office, run, "restarted")


def _suspended(office: Office, name: str) -> str:
    run = office.start("hr_onboarding", name)
    office.wait(run, "suspended")
    assert (office.roles(name), office.mails(name)) == ([], 0)
    return run


def _finished_once(office: Office, run: str, name: str) -> None:
    office.wait(run, "completed")
    assert len(office.accounts(name)) == 1
    assert office.roles(name) == ["security-level-3"]
    assert office.mails(name) == 1
