"""An instance that the admin provisions, and a worker with the real built-in agent that the test advances by hand."""

import json
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.test import Client

from agents.effect_handler import AgentEffects
from agents.external_agent import with_external_agent
from agents.registry import Registry
from approvals import clock
from approvals.models import Approval
from approvals.people import tokens
from approvals.port.adapter import ApprovalService
from approvals.rights.principals import Scope
from runtime.ports.access import Actor
from tests.support.engine import HandDriven
from tests.support.people import until
from tests.support.seeds import Cast, decide
from tests.web.aap.receivers import Hook, listening

BODY = {
    "tool": "deploy",
    "arguments": {"version": "1.4.2", "replicas": 3},
    "timeout": "10m",
    "agent_reasoning": "The tests are green.",
    "context": {"call_id": "thread:1", "framework": "langgraph"},
}


class Door:
    """Calls the protocol with one bearer credential."""

    def __init__(self, credential: str) -> None:
        self.headers = {"authorization": f"Bearer {credential}"}
        self.client = Client(headers=self.headers)

    def send(self, method: str, path: str, body: Any = None, key: str | None = None) -> Any:
        headers = {} if key is None else {"idempotency-key": key}
        text = body if isinstance(body, str | bytes) else "" if body is None else json.dumps(body)
        kind = "application/json" if text else ""
        return self.client.generic(method, f"/api/aap/v1{path}", text, kind, headers=headers)

    def ask(self, body: Any = None, key: str = "") -> dict[str, Any]:
        answer = self.send("POST", "/requests", body or BODY, key or str(uuid4()))
        assert answer.status_code in (200, 201), answer.content
        return dict(answer.json())

    def read(self, request: str) -> dict[str, Any]:
        answer = self.send("GET", f"/requests/{request}")
        assert answer.status_code == 200, answer.content
        return dict(answer.json())

    def use(self, request: str, key: str = "k") -> Any:
        return self.send("POST", f"/requests/{request}/consume", key=key)

    def report(self, request: str, status: str = "succeeded", **note: str) -> Any:
        return self.send("POST", f"/requests/{request}/outcome", {"status": status, **note})


class Desk(HandDriven):
    """A worker with the built-in agent; Bea decides."""

    def __init__(self) -> None:
        registry = with_external_agent(Registry(agents={}))
        super().__init__(AgentEffects(registry, rate_limits=None), ApprovalService())

    def advance(self, request: str) -> str:
        return str(self.advance_once(UUID(request)).status)

    def approval(self, request: str) -> Approval:
        return Approval.objects.filter(run=UUID(request)).latest("created_at")

    def decide(self, request: str, verdict: str = "approve", reason: str = "") -> None:
        """Ask people, decide as Bea, and let the run receive it."""
        self.advance(request)
        decide(self.approval(request), Actor(person="bea"), verdict, reason)
        self.advance(request)


def code(answer: Any) -> tuple[int, str]:
    """The status and the code of a refusal, whose ids agree."""
    error = answer.json()["error"]
    assert error["request_id"] == answer["X-Request-ID"]
    return answer.status_code, error["code"]


def wait_for(moment: str) -> None:
    """Wait until the clock of the database has come to a time of an answer."""
    time = datetime.fromisoformat(moment)
    until(lambda: (clock.read_time() >= time) or None, moment)


@pytest.fixture
def desk(by_hand: None, cast: Cast) -> Iterator[Desk]:
    worker = Desk()
    yield worker
    worker.close()


@pytest.fixture
def provisioner(by_hand: None, cast: Cast) -> Door:
    _, token = tokens.create(cast.admin, [Scope.INSTANCES_MANAGE])
    return Door(token)


@pytest.fixture
def provision(provisioner: Door) -> Callable[[str], Door]:
    def make(name: str) -> Door:
        answer = provisioner.send("POST", "/instances", {"instance_name": name}, str(uuid4()))
        assert answer.status_code == 201, answer.content
        return Door(answer.json()["credential"]["token"])

    return make


@pytest.fixture
def bot(provision: Callable[[str], Door]) -> Door:
    return provision("Deploy bot")


@pytest.fixture
def hook(settings: Any) -> Iterator[Hook]:
    settings.SIGNOFF_LOOPBACK_WEBHOOKS = True
    with listening() as hook:
        yield hook


@pytest.fixture
def hooked(hook: Hook, provisioner: Door) -> Door:
    made = provisioner.send("POST", "/instances", {"delivery": hook.delivery}, str(uuid4()))
    assert made.status_code == 201, made.content
    return Door(made.json()["credential"]["token"])
