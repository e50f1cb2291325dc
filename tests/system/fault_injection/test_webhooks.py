"""kill -9 of the web between a decision and its webhook, and of the sweeper that sends it.

Each request that ends is told, and again only with the same id and body.
"""

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from approvals.models import Approval, OutboxMessage
from runtime.ports.access import Actor
from runtime.store import failpoints
from tests.support.office import Office, office  # noqa: F401
from tests.support.seeds import decide
from tests.system.fault_injection.harness import points
from tests.system.fault_injection.harness.loop import die_at
from tests.web.aap.conftest import (  # noqa: F401 - pytest finds fixtures by their names
    Desk,
    Door,
    desk,
    hook,
    hooked,
    provisioner,
)
from tests.web.aap.receivers import Hook, pass_time, send_due
from tests.web.conftest import admin_api  # noqa: F401
from tests.web.test_subscriptions import Program, program  # noqa: F401
from tests.web.test_subscriptions import send_due as tell_programs

pytestmark = [pytest.mark.faults, pytest.mark.usefixtures("by_hand", "forks")]

DECIDED = "decided:request:0"


def decide_and_die(approval: UUID) -> None:
    """Decide as the web does, whose process ends before its answer."""
    decide(Approval.objects.get(pk=approval), Actor(person="bea"), "approve")
    failpoints.hit("decided", "request", 0)


@pytest.mark.parametrize("point", sorted({DECIDED, *points.MESSAGES}))
def test_a_killed_process_loses_no_message(
    point: str,
    hooked: Door,  # noqa: F811
    hook: Hook,  # noqa: F811
    desk: Desk,  # noqa: F811
    tmp_path: Path,
) -> None:
    requests = [hooked.ask()["id"] for _ in range(3)]
    for request in requests:
        desk.advance(request)
    first = desk.approval(requests[0]).pk
    if point == DECIDED:
        die_at(point, tmp_path, decide_and_die, first)
    else:
        for request in requests:
            desk.decide(request)
        die_at(point, tmp_path, send_due, SIGNOFF_LOOPBACK_WEBHOOKS=True)
        assert len(hook.events) == (point == "sent:message:0")
        send_due()
        assert (
            OutboxMessage.objects.filter(ended_at=None).count() == 1
        )  # under the lease of the dead
    pass_time()
    send_due()
    for request in requests:
        if hooked.read(request)["status"] == "pending":
            desk.decide(request)
    send_due()
    by_request = {event["request_id"]: event for event in hook.events}
    assert set(by_request) == set(requests)
    assert all(event == by_request[event["request_id"]] for event in hook.events)
    assert len(hook.events) == 3 + (point == "sent:message:0")
    endings = set(OutboxMessage.objects.values_list("ending", flat=True))
    assert endings == {"delivered"}


@pytest.mark.parametrize("point", sorted(points.MESSAGES))
def test_a_killed_sweeper_loses_no_event_of_a_subscription(
    point: str,
    program: Program,  # noqa: F811
    office: Office,  # noqa: F811
    tmp_path: Path,
) -> None:
    program.subscribe(events=["run.started", "run.waiting", "approval.requested"])
    for _ in range(2):
        office.start()
    die_at(point, tmp_path, tell_programs, SIGNOFF_LOOPBACK_WEBHOOKS=True)
    for _ in range(2):
        pass_time()
        tell_programs()
    events = dict[str, Any]()
    for headers, event in zip(program.headers, program.events, strict=True):
        assert events.setdefault(headers["webhook-id"], event) == event
    assert len(events) == OutboxMessage.objects.filter(ending="delivered").count() == 6
    assert OutboxMessage.objects.count() == 6
    assert len(program.events) == 6 + (point == "sent:message:0")
