"""`signoff ask` and `@approved` against the application itself: a person decides, and the run has the outcome."""

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import httpx2
import pytest

from approvals.people import tokens
from approvals.rights.principals import Scope
from runtime.models import Run
from signoff_client import NotApproved, approved
from signoff_client.gate import INSTANCE_TOKEN, URL
from tests.client.terminal import Terminal
from tests.client.test_gate import runs, script
from tests.support.people import until
from tests.support.seeds import Cast
from tests.support.threads import in_thread
from tests.web.aap.conftest import Desk, desk

__all__ = ["desk"]


@pytest.fixture(autouse=True)
def _instance(served: str, cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    _, token = tokens.create(cast.admin, [Scope.INSTANCES_MANAGE])
    answer = httpx2.post(
        f"{served}/api/aap/v1/instances",
        json={"instance_name": "Deploy bot"},
        headers={"Authorization": f"Bearer {token}", "Idempotency-Key": str(uuid4())},
    )
    monkeypatch.setenv(URL, served)
    monkeypatch.setenv(INSTANCE_TOKEN, answer.json()["credential"]["token"])


@pytest.fixture
def decide(desk: Desk) -> Iterator[Callable[..., None]]:
    """Decide the next request as Bea while the test waits for it."""
    threads = []

    def decide(verdict: str, reason: str = "") -> None:
        threads.append(
            in_thread(lambda: desk.decide(str(until(_waiting, "a request")), verdict, reason))
        )

    yield decide
    for thread in threads:
        thread.join()


def _waiting() -> object:
    return Run.objects.filter(ended_at=None).values_list("id", flat=True).first()


def test_a_command_runs_once_after_a_person_approves(
    desk: Desk, decide: Callable[..., None], terminal: Terminal, tmp_path: Path
) -> None:
    decide("approve")
    words = ("ask", "--tool", "deploy", "--arg", "version=1.4.2", "--key", "job-7", "--")
    assert terminal.run(*words, *script(tmp_path)).status == 0
    run = Run.objects.get()
    assert desk.approval(str(run.id)).decided_by == "bea"
    assert desk.advance(str(run.id)) == "completed"
    assert terminal.run(*words, *script(tmp_path)).status == 121
    assert runs(tmp_path) == 1


def test_a_denied_function_is_not_called(decide: Callable[..., None]) -> None:
    @approved(risk="high")
    def deploy(version: str) -> None:
        raise AssertionError(version)

    decide("deny", "Not on a Friday.")
    with pytest.raises(NotApproved, match="Not on a Friday"):
        deploy("1.4.2")
