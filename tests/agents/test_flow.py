"""The onboarding flows on the real engine, a real directory and a real mail server."""

import json

import pytest
from django.contrib.auth.models import Group

from agents.sdk import ToolError, tool
from agents.sdk.scripts import Reply, Turn, call, say, script
from runtime.broker import dispatch
from runtime.core.enums import Verdict
from runtime.models import Gate
from runtime.queries import runs
from tests.agents.conftest import Directory, Sink
from tests.support.engine import Engine, engine_of
from tests.support.specs import NEWCOMER, registry_of, spec_of

FLOWS = [
    ("hr_onboarding", {"0": "hr_onboarding", "0.c1.0": "account_agent"}),
    ("hr_onboarding_single", {"0": "hr_onboarding_single"}),
]


@pytest.mark.parametrize(("agent", "frames"), FLOWS)
def test_an_approved_onboarding_has_one_account_role_and_mail(
    engine: Engine, directory: Directory, sink: Sink, agent: str, frames: dict[str, str]
) -> None:
    run = engine.begin(agent, NEWCOMER)
    stored = runs.continuation(run.id) or {}
    assert {name: frame["agent"] for name, frame in stored["frames"].items()} == frames
    (pending,) = stored["pending"]
    assert pending["path"] == [*frames.values(), "set_privileges"]
    (account,) = directory.accounts()
    assert account.external_id == f"{run.id}/{list(frames)[-1]}/c1.0"
    assert not account.roles
    assert sink.mails == []

    done = engine.decide(run, Verdict.APPROVE)

    assert done.status == "completed"
    assert json.loads(done.output or "") == (
        "The account new.hire was made with security level 3. "
        "The welcome mail went to new.hire@example.com."
    )
    (account,) = directory.accounts()
    assert [role.value for role in account.roles] == ["security-level-3"]
    assert len(sink.mails) == 1


@pytest.mark.parametrize("agent", [agent for agent, _ in FLOWS])
def test_a_denied_onboarding_sets_no_role_and_gives_the_reason(
    engine: Engine, directory: Directory, sink: Sink, agent: str
) -> None:
    run = engine.begin(agent, NEWCOMER)
    done = engine.decide(run, Verdict.DENY, "not before the trial period ends")
    assert done.status == "completed"
    assert "were denied: not before the trial period ends" in json.loads(done.output or "")
    (account,) = directory.accounts()
    assert not account.roles
    assert not any(line.startswith("PATCH") for line in directory.requests)
    assert len(sink.mails) == 1


@pytest.mark.parametrize("agent", [agent for agent, _ in FLOWS])
def test_a_taken_username_ends_the_onboarding_without_a_mail(
    engine: Engine, directory: Directory, sink: Sink, agent: str
) -> None:
    first = engine.begin("hr_onboarding_single", NEWCOMER)
    done = engine.begin(agent, NEWCOMER)
    assert done.status == "completed"
    assert json.loads(done.output or "") == (
        "No account was made for new.hire: the username new.hire is taken."
    )
    assert not Gate.objects.filter(run=done.id).exists()
    (account,) = directory.accounts()
    assert account.external_id.startswith(str(first.id))
    assert sink.mails == []


def test_two_rights_are_shown_together_and_decided_separately(
    engine: Engine, directory: Directory
) -> None:
    run = engine.begin("hr_access_bundle", NEWCOMER)
    assert {engine.tool_at(gate) for gate in engine.gates(run)} == {
        "set_privileges",
        "grant_application_access",
    }
    run = engine.decide(run, Verdict.APPROVE, tool="grant_application_access")
    assert run.status == "suspended"
    (account,) = directory.accounts()
    assert [one.value for one in account.entitlements] == ["application-intranet"]
    assert not account.roles

    done = engine.decide(run, Verdict.DENY, "level 3 needs a ticket", tool="set_privileges")
    assert done.status == "completed"
    assert json.loads(done.output or "") == (
        "The account new.hire was made. Security level 3 was denied: level 3 needs a ticket. "
        "Access to intranet was granted."
    )
    (account,) = directory.accounts()
    assert not account.roles


@pytest.mark.parametrize("first", ["set_privileges", "grant_application_access"])
def test_both_rights_approved_leave_each_other_alone(
    engine: Engine, directory: Directory, first: str
) -> None:
    run = engine.begin("hr_access_bundle", NEWCOMER)
    run = engine.decide(run, Verdict.APPROVE, tool=first)
    done = engine.decide(run, Verdict.APPROVE)
    assert json.loads(done.output or "") == (
        "The account new.hire was made. Security level 3 was granted. "
        "Access to intranet was granted."
    )
    (account,) = directory.accounts()
    assert [one.value for one in account.roles] == ["security-level-3"]
    assert [one.value for one in account.entitlements] == ["application-intranet"]


@tool(effect="transactional")
def employ(name: str) -> dict[str, str]:
    """Writes a person down."""
    Group.objects.create(name=name)
    if name == "wrong":
        raise ToolError("no person has that name")
    return {"name": name}


@script
def clerk(turn: Turn) -> Reply:
    written = turn.result("employ")
    if written is None:
        return call("employ", name=turn.input["name"])
    return say("Done." if written.ok else written.why)


@pytest.mark.parametrize(("name", "said", "rows"), [("right", "Done.", 1), ("wrong", None, 0)])
def test_a_transactional_tool_commits_with_its_entry(
    transactional_db: None, monkeypatch: pytest.MonkeyPatch, name: str, said: str | None, rows: int
) -> None:
    monkeypatch.setattr(dispatch, "dispatch", lambda run, queue="": None)
    with engine_of(registry_of(spec_of("desk", model=clerk, tools=[employ]))) as engine:
        run = engine.begin("desk", {"name": name})
    assert run.status == "completed"
    assert json.loads(run.output or "") == (said or "no person has that name")
    assert Group.objects.filter(name=name).count() == rows
