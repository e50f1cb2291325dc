"""kill -9 of a web process that serves an agent outside: the agent sends the same again with its key, as it does.

No request is lost or asked twice, no approval is used twice, and no outcome is lost.
"""

import json
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from pytest_django import Settings

from approvals.decisions import external_requests
from approvals.models import Approval, ApprovalUse, Instance
from approvals.people import instances
from runtime.control.verification import verify
from runtime.core.values import json_values
from runtime.models import Run
from runtime.ports.access import Actor
from runtime.store.tables import used_approvals
from tests.support.seeds import Cast
from tests.system.fault_injection.harness import points
from tests.system.fault_injection.harness.loop import die_at
from tests.web.aap.conftest import BODY, Desk, Door, code, desk

__all__ = ["desk"]
pytestmark = [pytest.mark.faults, pytest.mark.usefixtures("forks")]


@pytest.fixture
def credential(desk: Desk, cast: Cast) -> str:
    admin = Actor(person="admin")
    made, _ = instances.provision(instances.InstanceFields(name="Bot"), actor=admin)
    return str(made["credential"]["token"])


@pytest.fixture
def ledger(tmp_path: Path, settings: Settings) -> Path:
    settings.SIGNOFF_LEDGER = tmp_path / "ledger"
    return tmp_path / "ledger"


def instance_of(credential: str) -> Instance:
    instance = instances.authenticate(credential)
    assert instance is not None
    return instance


def ask(credential: str) -> None:
    """What the view does with the client's request; the processes that die have no host of the test."""
    submitted = json_values.read_object(json.dumps(BODY).encode())
    ten = timedelta(minutes=10)
    external_requests.ask(
        instance=instance_of(credential), key="k", submitted=submitted, timeout=ten
    )


def use(credential: str, request: str) -> None:
    external_requests.use(instance=instance_of(credential), request=UUID(request), key="k")


def report(credential: str, request: str) -> None:
    external_requests.report(
        instance=instance_of(credential), request=UUID(request), succeeded=True, note="done"
    )


@pytest.mark.parametrize("point", points.of_instances(external_requests.CREATE))
def test_a_killed_create_makes_one_request(
    point: str, credential: str, desk: Desk, tmp_path: Path
) -> None:
    bot = Door(credential)
    die_at(point, tmp_path, ask, credential)
    assert Run.objects.count() == point.startswith("committed")
    made = bot.ask(key="k")
    assert bot.ask(key="k")["id"] == made["id"]
    assert Run.objects.count() == 1
    desk.decide(made["id"])
    assert bot.use(made["id"]).status_code == 200
    assert Approval.objects.count() == 1


@pytest.mark.parametrize("point", points.of_instances(external_requests.CONSUME))
def test_a_killed_consume_uses_the_approval_once(
    point: str, credential: str, desk: Desk, tmp_path: Path, ledger: Path
) -> None:
    bot = Door(credential)
    made = bot.ask()["id"]
    desk.decide(made)
    die_at(point, tmp_path, use, credential, made, SIGNOFF_LEDGER=ledger)
    assert ApprovalUse.objects.count() == point.startswith("committed")
    # Another process of the agent comes first: it may start only if the first one did not.
    other = bot.use(made, "other")
    if point.startswith("committed"):
        assert code(other) == (409, "already_consumed")
        assert bot.use(made).status_code == 200
    else:
        assert other.status_code == 200
        assert code(bot.use(made)) == (409, "already_consumed")
    assert ApprovalUse.objects.count() == 1
    assert [run for run, _ in used_approvals.list_spent()] == [UUID(made)]
    assert bot.report(made).status_code == 200
    assert desk.advance(made) == "completed"
    assert not verify(UUID(made)).findings


@pytest.mark.parametrize("point", points.of_instances(external_requests.OUTCOME))
def test_a_killed_report_is_kept_once(
    point: str, credential: str, desk: Desk, tmp_path: Path
) -> None:
    bot = Door(credential)
    made = bot.ask()["id"]
    desk.decide(made)
    bot.use(made)
    die_at(point, tmp_path, report, credential, made)
    assert ("outcome" in bot.read(made)["consumption"]) is point.startswith("committed")
    assert bot.report(made, note="done").status_code == 200
    assert code(bot.report(made, "failed")) == (409, "outcome_conflict")
    assert desk.advance(made) == "completed"
    assert "done" in str(Run.objects.get(id=made).output)
    assert not verify(UUID(made)).findings
