"""Published agents, which the web answers from without author code, and the changes between two versions of one."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, connections

from agents.catalogue import queries
from agents.catalogue.published import Catalogue, publish
from agents.catalogue.versions import list_changes, list_new_writes
from agents.effect_handler import AgentEffects
from agents.models import AgentVersion, PublishedAgent
from agents.registry import Registry
from agents.sdk import inputs
from agents.sdk.spec import AgentSpec, ApprovalMode
from agents.testing.drive import replies
from runtime.errors import InvalidInput, UnknownAgent
from runtime.models import WorkerProcess
from runtime.ports.agents import AgentParts, Asking, VersionChange
from tests.support.specs import NEWCOMER, child, greet, handler_of, registry_of, spec_of, version


def _rows() -> list[dict[str, object]]:
    rows = PublishedAgent.objects.order_by("name").values()
    return [{key: value for key, value in row.items() if key != "published_at"} for row in rows]


@pytest.mark.django_db
def test_published_agents_match_the_workers(hr: Registry) -> None:
    publish(hr)
    row = PublishedAgent.objects.get(name="hr_onboarding")
    agent = hr.get("hr_onboarding")
    assert (row.fingerprint, row.input_schema) == (agent.fingerprint, agent.input_schema)
    assert (row.subagents, row.steps) == (["account_agent"], list(agent.steps or ()))
    (mail,) = row.tools
    facts = {"name": "send_welcome_mail", "effect": "write", "risk": "low", "approval": False}
    assert mail == {**mail, **facts, "schema": agent.tools[0].schema}
    before = _rows()
    assert len(before) == len(hr.agents)
    PublishedAgent.objects.update(fingerprint="sha256:old", tools=[])
    publish(hr)
    assert _rows() == before


@pytest.mark.django_db
def test_a_family_has_the_parts_of_all_agents_below(hr: Registry) -> None:
    publish(hr)
    family = Catalogue().read_family("hr_onboarding")
    assert family == {
        "hr_onboarding": AgentParts(
            tools={"send_welcome_mail": Asking.NEVER}, agents={"account_agent": Asking.NEVER}
        ),
        "account_agent": AgentParts(
            tools={"create_account": Asking.NEVER, "set_privileges": Asking.ALWAYS}, agents={}
        ),
    }
    PublishedAgent.objects.filter(name="account_agent").update(subagents=["hr_onboarding", "gone"])
    assert set(Catalogue().read_family("account_agent")) == {"hr_onboarding", "account_agent"}
    strict = replace(hr.get("hr_onboarding"), approvals=ApprovalMode.EVERY_CALL)
    publish(Registry(agents={strict.name: strict}))
    assert Catalogue().read_family(strict.name)[strict.name].agents == {
        "account_agent": Asking.ALWAYS
    }
    AgentVersion.objects.update(facts="no JSON")
    assert Catalogue().read_family(strict.name)[strict.name].agents == {
        "account_agent": Asking.NEVER
    }
    for name in ("stranger", "stranger\x00", "\ud800"):
        assert Catalogue().read_family(name) == {}


@pytest.mark.django_db
def test_the_catalogue_checks_input_by_the_published_schema(hr: Registry) -> None:
    publish(hr)
    with pytest.raises(InvalidInput) as caught:
        Catalogue().check_input("hr_onboarding", {**NEWCOMER, "security_level": 100})
    assert caught.value.field == "input.security_level"
    for name in ("stranger", "stranger\x00", "\ud800"):
        with pytest.raises(UnknownAgent):
            Catalogue().check_input(name, NEWCOMER)


@pytest.mark.django_db
def test_the_catalogue_has_the_reasons_to_deny_a_tool() -> None:
    suggests = replace(greet, deny_reasons=("Not yet.",))
    publish(registry_of(spec_of("hello", tools=[suggests])))
    known = Catalogue().deny_reasons
    assert known("hello", "greet") == ("Not yet.",)
    assert known("hello", "other") == known("stranger", "greet") == ()


@pytest.mark.django_db(transaction=True)
def test_several_workers_may_publish_at_once(hr: Registry) -> None:
    start = Barrier(4)

    def worker(_: int) -> None:
        try:
            for _round in range(5):
                start.wait(60)
                publish(hr)
        finally:
            connections["default"].close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(worker, range(4)))
    assert len(_rows()) == len(hr.agents)


@pytest.mark.parametrize(
    ("change", "field", "detail"),
    [
        ({"security_level": 100}, "input.security_level", "must be at most 99"),
        ({"security_level": 3.0}, "input.security_level", "must be of type integer"),
        ({"security_level": True}, "input.security_level", "must be of type integer"),
        ({"email": "new.hire@example.com\n"}, "input.email", "must be a valid email"),
        ({"email": "n@" + "a." * 150 + "a"}, "input.email", "at most 254 characters"),
        ({"full_name": ""}, "input.full_name", "must have at least 1 characters"),
        ({"full_name": "New\r\nBcc: all@example.com"}, "input.full_name", "must match"),
        ({"admin": True}, "input.admin", "is not expected"),
        ({"full_name": "\x00"}, "input.full_name", "NUL"),
        ({"full_name": "x" * 70_000}, "input", "at most 65536"),
    ],
)
def test_the_field_is_named(hr: Registry, change: dict[str, Any], field: str, detail: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        inputs.check(hr.get("hr_onboarding").input_schema, {**NEWCOMER, **change})
    assert caught.value.field == field
    assert detail in caught.value.detail


def greeting(**changed: Any) -> AgentSpec:
    return version(tools=[replace(greet, **changed)])


STRICTER: list[tuple[AgentSpec, str]] = [
    (version(tools=[greet, replace(greet, name="wave")]), "tool wave"),
    (version(subagents=[child(), replace(child(), name="other")]), "sub-agent other"),
    (version(subagents=[child("Helps a lot.")]), "sub-agent helper: description"),
    (greeting(description="Greet a person."), "tool greet: description"),
    (version(instructions="Greet.\nBe brief."), "instructions"),
    (greeting(schema={**greet.schema, "title": "Greet"}), "tool greet: schema"),
    (greeting(approval=True), "tool greet: approval"),
    (version(tools=[greet.with_settings(deadline=5)]), "tool greet: deadline"),
    (greeting(secret_args=frozenset({"name"})), "tool greet: secret"),
]
LAXER: list[tuple[AgentSpec, str]] = [
    (version(model=replies), "model"),
    (version(tools=[]), "tool greet"),
    (version(subagents=[]), "sub-agent helper"),
    (version(subagents=[replace(child(), input_schema={})]), "sub-agent helper: schema"),
    (greeting(schema={**greet.schema, "required": []}), "tool greet: schema"),
    (greeting(effect="write"), "tool greet: effect"),
    (greeting(effect="read"), "tool greet: effect"),
    (greeting(risk="low"), "tool greet: risk"),
    (greeting(risk="high"), "tool greet: risk"),
]


@pytest.mark.parametrize(
    ("newer", "part", "asks"),
    [*((*one, False) for one in STRICTER), *((*one, True) for one in LAXER)],
)
def test_removals_and_laxer_rules_need_approval(newer: AgentSpec, part: str, asks: bool) -> None:
    (change,) = list_changes(version().definition, newer.definition)
    assert (change.part, change.asks) == (part, asks)


def test_dropping_an_approval_or_a_secret_needs_approval() -> None:
    strict, every = greeting(approval=True, secret_args={"name"}), version(approvals="every_call")
    for careful, parts in (
        (strict, ["tool greet: approval", "tool greet: secret"]),
        (every, ["sub-agent helper: approval", "tool greet: approval"]),
    ):
        found = list_changes(careful.definition, version().definition)
        assert sorted(change.part for change in found if change.asks) == parts
        stricter = list_changes(version().definition, careful.definition)
        assert not any(change.asks for change in stricter)


def test_a_tool_that_has_become_a_write_is_named() -> None:
    assert list_new_writes(version().definition, greeting(effect="write").definition) == ("greet",)
    assert list_new_writes(greeting(effect="write").definition, version().definition) == ()
    assert list_new_writes(version(tools=[]).definition, greeting(effect="write").definition) == ()


OLD, NEW = version(), greeting(effect="write", risk="high")


def _met(mine: AgentSpec, other: AgentSpec) -> VersionChange:
    found = AgentEffects(registry_of(mine)).compare_version("greeter", other.fingerprint)
    assert found is not None
    return found


@pytest.fixture
def both(db: None) -> None:
    """The old version, published a day before the new one."""
    publish(registry_of(OLD))
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE agents_agentversion SET published_at = published_at - interval '1 day'"
        )
    publish(registry_of(NEW))
    publish(registry_of(OLD))  # the same once more is no version


def test_a_worker_compares_its_agent_with_a_published_version(both: None) -> None:
    found = _met(NEW, OLD)
    assert (found.older, found.asks, found.writes) == (False, True, ("greet",))
    assert found.agent.fingerprint == NEW.fingerprint
    assert _met(OLD, NEW).older
    handler = handler_of(NEW)
    assert handler.compare_version("greeter", NEW.fingerprint) is None
    with pytest.raises(UnknownAgent):
        handler.compare_version("stranger", OLD.fingerprint)


@pytest.mark.parametrize("facts", ['{"name": "greeter"}', "not JSON"])
def test_a_description_changed_in_the_database_is_rejected(both: None, facts: str) -> None:
    AgentVersion.objects.filter(fingerprint=OLD.fingerprint).update(facts=facts)
    found = _met(NEW, OLD)
    assert [(change.part, change.asks) for change in found.changes] == [("version", True)]


def test_promoting_a_version_takes_a_release_back(both: None) -> None:
    with pytest.raises(CommandError, match="more than one version of greeter begins with sha256:"):
        call_command("promote_version", "greeter", "sha256:")
    with pytest.raises(CommandError, match="no version of stranger begins with sha256:"):
        call_command("promote_version", "stranger", "sha256:")
    call_command("promote_version", "greeter", OLD.fingerprint[:20])
    assert (_met(OLD, NEW).older, _met(OLD, NEW).asks) == (False, True)


@pytest.mark.django_db
def test_tools_are_listed_with_their_agents_and_the_outcomes_of_their_calls(hr: Registry) -> None:
    publish(hr)
    counts = (
        {"create_account returned": 3, "create_account failed": 1},
        {"create_account in_doubt": 1},
    )
    for process, calls in enumerate([*counts, {}]):
        WorkerProcess.objects.create(
            id=uuid4(), host="here", process=process, measures={"calls": calls}
        )
    listed = {used.tool.name: used for used in queries.list_tools()}
    assert list(listed) == sorted(listed)
    account = listed["create_account"]
    assert account.agents == ("account_agent", "hr_access_bundle", "hr_onboarding_single")
    assert account.outcomes is not None
    assert (account.outcomes.all, account.outcomes.errors, account.outcomes.in_doubt) == (5, 40, 1)
    assert listed["send_welcome_mail"].outcomes is None
