"""The broker is emptied, killed, frozen or full at the moment of the decision, and everything else is replaced."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import redis

from config.local.http_client import request
from tests.support import processes
from tests.support.people import Office, until
from tests.support.stack import Stack

pytestmark = pytest.mark.e2e

ROUNDS = 50


@pytest.fixture(scope="module")
def office(sandbox: Path) -> Iterator[Office]:
    with Stack(sandbox / "broker", ABEYANCE_LEASE_SECONDS="2") as stack:
        yield Office(stack)


def test_a_broker_emptied_at_the_decision_loses_nothing(office: Office) -> None:
    run = _suspended(office, "emptied")
    worker = processes.of(office.stack, "worker").process
    worker.suspend()  # or it would be faster than we are
    with redis.Redis.from_url(worker.environ()["REDIS_URL"]) as broker:
        _approve(office, run)
        until(lambda: broker.llen("resumed") or None, "the hint to arrive")
        broker.flushall()
    worker.resume()
    _finished_once(office, run, "emptied")


def test_a_broker_killed_at_the_decision_loses_nothing(office: Office) -> None:
    run = _suspended(office, "killed")
    broker = processes.of(office.stack, "broker").process
    broker.kill()
    _approve(office, run)
    _finished_once(office, run, "killed")
    assert not psutil.pid_exists(broker.pid)  # the launcher has started another one


def test_a_broker_frozen_at_the_decision_delays_no_answer(office: Office) -> None:
    run = _suspended(office, "frozen")
    broker = processes.of(office.stack, "broker").process
    broker.suspend()
    try:
        _approve(office, run)
        assert broker.status() == psutil.STATUS_STOPPED  # it answered without the broker
        assert office.roles("frozen") == []
    finally:
        broker.resume()
    _finished_once(office, run, "frozen")


def test_a_broker_that_is_full_at_the_decision_loses_nothing(office: Office) -> None:
    """A full broker refuses writes: decisions and the worker go on without it."""
    run = _suspended(office, "full")
    worker = processes.of(office.stack, "worker").process
    with redis.Redis.from_url(worker.environ()["REDIS_URL"]) as broker:
        before = broker.config_get("maxmemory*")
        broker.config_set("maxmemory-policy", "noeviction")
        broker.config_set("maxmemory", 1)
        try:
            with pytest.raises(redis.ResponseError, match="maxmemory"):
                broker.rpush("resumed", "anything")
            _approve(office, run)
            assert office.run(run)["status"] != "completed"  # no worker gets a hint
        finally:
            for name, value in before.items():
                broker.config_set(name, value)
    _finished_once(office, run, "full")
    assert worker.is_running()


def test_another_web_process_decides_and_another_worker_resumes(office: Office) -> None:
    run = _suspended(office, "handed")
    stack, first = office.stack, processes.of(office.stack, "worker").process
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{free.getsockname()[1]}"
    first.suspend()
    try:
        with (
            processes.another(stack, "web", "web2", bind=place),
            processes.another(stack, "worker", "worker2") as second,
        ):
            token = stack.credentials["users"]["bea"]["token"]
            code, _ = _decide(f"http://{place}", office.approval(run), token, "approve")
            assert code == 200
            _finished_once(office, run, "handed")
            assert second.process.is_running()
            assert first.status() == psutil.STATUS_STOPPED
    finally:
        first.resume()


def test_eight_people_decide_at_once_and_one_wins_every_time(office: Office) -> None:
    said = office.execute("""
from approvals.accounts import tokens
from approvals.accounts.people import create_person
from approvals.permissions.scopes import ALL_SCOPES
from approvals.policy import Group
for n in range(8):
    person = create_person(username=f"reviewer{n}", password="x" * 40, groups=[Group.REVIEWERS])
    print("reviewer", tokens.create(person, ALL_SCOPES)[1])
""")
    tokens = [line.split()[1] for line in said.splitlines() if line.startswith("reviewer")]
    runs = [office.start("hr_onboarding_single", f"race{n}") for n in range(ROUNDS)]
    for run in runs:
        office.wait(run, "suspended")
        _race(office, office.approval(run), tokens)
    for run in runs:
        office.wait(run, "completed")


def _race(office: Office, approval: dict[str, Any], tokens: list[str]) -> None:
    barrier = threading.Barrier(len(tokens))
    answers: dict[str, tuple[int, Any]] = {}

    def decide(number: int, token: str) -> None:
        barrier.wait()
        verdict = ("approve", "deny")[number % 2]
        answers[f"reviewer{number}"] = _decide(office.stack.url, approval, token, verdict)

    threads = [threading.Thread(target=decide, args=one) for one in enumerate(tokens)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = [name for name, (status, _) in answers.items() if status == 200]
    del answers[winner]
    for status, said in answers.values():
        assert (status, said["code"], said["decided_by"]) == (409, "already_decided", winner)


def test_a_decision_outlives_a_restart_of_everything(office: Office) -> None:
    run = _suspended(office, "restarted")
    before = {one.pid for one in office.stack.processes()}
    office.stack.restart()
    assert before.isdisjoint(one.pid for one in office.stack.processes())
    _approve(office, run)
    _finished_once(office, run, "restarted")


def _decide(url: str, approval: dict[str, Any], token: str, verdict: str) -> tuple[int, Any]:
    path = f"/api/v1/approvals/{approval['id']}/decision"
    body = {"verdict": verdict, "digest": approval["digest"], "reason": "a race"}
    body["confirm"] = approval["confirm"]
    return request(url, "POST", path, token=token, body=body)


def _approve(office: Office, run: str) -> None:
    assert office.decide("bea", office.approval(run), "approve")[0] == 200


def _suspended(office: Office, name: str) -> str:
    run = office.start("hr_onboarding", name)
    office.wait(run, "suspended")
    assert (office.roles(name), office.mails(name)) == ([], 0)
    return run


def _finished_once(office: Office, run: str, name: str) -> None:
    office.wait(run, "completed")
    assert len(office.accounts(name)) == 1
    assert (office.roles(name), office.mails(name)) == (["security-level-3"], 1)
