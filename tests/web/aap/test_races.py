"""Requests of agents outside end once, and their approvals are used once, also if several act at the same time."""

import json
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from django.test import override_settings

from approvals.decisions import external_requests
from approvals.errors import UnknownInstance
from approvals.models import Approval, ApprovalUse, AuditEntry, Instance
from approvals.people.accounts import set_groups
from approvals.rules.policy import Group
from runtime.control import interventions
from runtime.errors import RequestError
from runtime.models import Run
from runtime.ports.access import Actor
from tests.support.seeds import decide
from tests.support.threads import together
from tests.web.aap.conftest import BODY, Desk, Door, code, wait_for

ADMIN, BEA = Actor(person="admin"), Actor(person="bea")
MANY = 6


def approved(bot: Door, desk: Desk, **changed: Any) -> str:
    """A request that Bea approved, and that its run knows of."""
    made = str(bot.ask({**BODY, **changed})["id"])
    desk.decide(made)
    return made


def at(moment: str, act: Callable[[], Any]) -> Callable[[], Any]:
    """Act at this moment of the database's clock, or just after."""

    def wait() -> Any:
        wait_for(moment)
        return act()

    return wait


def try_to_decide(approval: Approval) -> None:
    with suppress(RequestError):
        decide(approval, BEA)


def test_an_approval_is_used_before_it_expires_or_not_at_all(bot: Door, desk: Desk) -> None:
    with override_settings(SIGNOFF_USE_SECONDS=2):
        requests = [approved(bot, desk) for _ in range(MANY)]
    answers: dict[str, list[Any]] = {request: [] for request in requests}
    acts: list[Callable[[], Any]] = []

    def use(request: str, key: str) -> None:
        answers[request].append(bot.use(request, key))

    for request in requests:
        ends = datetime.fromisoformat(bot.read(request)["decision"]["expires_at"])
        before = (ends - timedelta(milliseconds=20)).isoformat()
        acts += [
            at(before, partial(use, request, "a")),
            at(before, partial(use, request, "b")),
            at(ends.isoformat(), partial(use, request, "c")),
        ]
    decisions = [bot.read(request)["decision"] for request in requests]
    together(acts)
    for request, decision in zip(requests, decisions, strict=True):
        read = bot.read(request)
        uses = [answer for answer in answers[request] if answer.status_code == 200]
        assert len(uses) == ("consumption" in read) <= 1
        codes = {code(answer)[1] for answer in answers[request] if answer not in uses}
        if uses:
            assert read["consumption"]["consumed_at"] < decision["expires_at"]
        assert codes == {"already_consumed" if uses else "approval_expired"}
        assert read["decision"] == decision


def test_cancelling_does_not_take_back_an_approval_that_is_used(bot: Door, desk: Desk) -> None:
    """Neither the instance's own cancellation, nor a person's of the run."""
    for turn in range(MANY):
        request, answers = approved(bot, desk), dict[str, Any]()
        by_person = turn % 2 == 0

        def cancel(request: str = request, by_person: bool = by_person) -> Any:
            if not by_person:
                return bot.send("DELETE", f"/requests/{request}")
            return interventions.cancel(run=UUID(request), reason="A mistake.", actor=ADMIN)

        def use(request: str = request, answers: dict[str, Any] = answers) -> None:
            answers["use"] = bot.use(request)

        together([cancel, use])
        assert answers["use"].status_code == 200 or by_person
        if answers["use"].status_code != 200:
            assert code(answers["use"]) == (409, "not_approved")
        is_used = ApprovalUse.objects.filter(run=request).exists()
        assert is_used is (answers["use"].status_code == 200)
        assert bot.read(request)["status"] == "approved"
        desk.advance(request)
        again = bot.use(request)
        assert (again.status_code == 200) is is_used  # the same key, so the same answer
        if is_used:
            assert bot.report(request).status_code == 200
        assert desk.advance(request) in ("cancelled", "completed")


def test_ending_an_instance_beside_a_decision_ends_each_request_once(
    bot: Door, desk: Desk, provisioner: Door
) -> None:
    requests = [bot.ask()["id"] for _ in range(MANY)]
    for request in requests:
        desk.advance(request)
    instance = Instance.objects.get()
    end = partial(provisioner.send, "DELETE", f"/instances/{instance.id}")
    together([end, *(partial(try_to_decide, desk.approval(request)) for request in requests)])
    ended = [
        str(external_requests.read(instance=instance, request=UUID(request)).state.status)
        for request in requests
    ]
    assert set(ended) <= {"approved", "cancelled"}
    for request, status in zip(requests, ended, strict=True):
        desk.advance(request)
        state = external_requests.read(instance=instance, request=UUID(request)).state
        assert state.status == status
        assert code(bot.use(request)) == (401, "invalid_credential")


def test_an_instance_that_ended_uses_no_approval(bot: Door, desk: Desk, provisioner: Door) -> None:
    """Also in a request whose credential was read before the end, and that goes on after it."""
    request, instance = approved(bot, desk), Instance.objects.get()
    provisioner.send("DELETE", f"/instances/{instance.id}")
    with pytest.raises(UnknownInstance):
        external_requests.use(instance=instance, request=UUID(request), key="k")
    assert not ApprovalUse.objects.exists()


def test_a_decision_after_the_deadline_does_not_count(bot: Door, desk: Desk) -> None:
    """A row says so that no path of ours writes: the state that agents read goes by the deadline alone."""
    made = bot.ask({**BODY, "timeout": "1s"})
    desk.decide(made["id"])
    deadline = datetime.fromisoformat(made["deadline_at"])
    late = deadline + timedelta(milliseconds=1)
    Approval.objects.filter(run=UUID(made["id"])).update(effective_at=late)
    wait_for((late + timedelta(milliseconds=1)).isoformat())
    read = bot.read(made["id"])
    assert read["decision"] == {"status": "expired", "decided_at": made["deadline_at"]}
    assert code(bot.use(made["id"])) == (409, "not_approved")


def test_an_approval_with_changes_is_a_denial_to_its_instance(bot: Door, desk: Desk) -> None:
    """No path of ours writes one: the protocol cannot tell the changes, so its instance must not start."""
    request = approved(bot, desk)
    changed = {**json.loads(desk.approval(request).args), "tool": "drop"}
    Approval.objects.filter(run=UUID(request)).update(edited=json.dumps(changed))
    assert bot.read(request)["status"] == "denied"
    assert code(bot.use(request)) == (409, "not_approved")


@pytest.mark.parametrize("person", ["bea", "admin"])
def test_rights_that_end_after_the_approval_keep_it_from_use(
    bot: Door, desk: Desk, person: str
) -> None:
    """Those of who decided, and those of who provisioned the instance."""
    request = approved(bot, desk)
    set_groups("cyril", [Group.ADMINS], actor=None)
    set_groups(person, [], actor=None)
    assert code(bot.use(request)) == (409, "not_approved")
    assert bot.read(request)["status"] == "approved"
    (entry,) = AuditEntry.objects.filter(run=UUID(request), act="use refused")
    assert (entry.actor, entry.token) == ("admin", str(Instance.objects.get().id))
    assert not ApprovalUse.objects.exists()
    assert Run.objects.get(id=request).ended_at is None
