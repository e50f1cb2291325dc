"""Changes between two versions of an agent, and those that need a person's approval."""

from dataclasses import replace
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from agents.catalogue import published
from agents.catalogue.published import publish
from agents.catalogue.versions import changes, writes
from agents.effect_handler import AgentEffects
from agents.models import AgentVersion
from agents.sdk.spec import AgentSpec
from agents.testing.scripted_models import replies
from runtime.errors import UnknownAgent
from tests.support.specs import child, greet, registry_of, version


def greeting(**changed: Any) -> AgentSpec:
    """A version whose one tool is another."""
    return version(tools=[replace(greet, **changed)])


OTHER_SCHEMA = {**greet.schema, "required": []}


@pytest.mark.parametrize(
    ("newer", "part"),
    [
        (version(tools=[greet, replace(greet, name="wave")]), "tool wave"),
        (version(subagents=[child(), replace(child(), name="other")]), "sub-agent other"),
        (version(subagents=[child("Helps a lot.")]), "sub-agent helper: description"),
        (greeting(description="Greet anybody."), "tool greet: description"),
        (greeting(risk="high"), "tool greet: risk"),
        (greeting(approval=True), "tool greet: approval"),
        (version(tools=[greet.with_settings(deadline=5)]), "tool greet: deadline"),
        (greeting(secret_args=frozenset({"name"})), "tool greet: secret"),
    ],
)
def test_additions_wording_and_stricter_rules_need_no_approval(newer: AgentSpec, part: str) -> None:
    (change,) = changes(version().definition, newer.definition)
    assert (change.part, change.asks) == (part, False)


@pytest.mark.parametrize(
    ("newer", "part"),
    [
        (version(instructions="Greet.\nBe brief."), "instructions"),
        (version(model=replies), "model"),
        (version(tools=[]), "tool greet"),
        (version(subagents=[]), "sub-agent helper"),
        (version(subagents=[replace(child(), input_schema={})]), "sub-agent helper: schema"),
        (greeting(schema=OTHER_SCHEMA), "tool greet: schema"),
        (greeting(effect="write"), "tool greet: effect"),
        (greeting(effect="read"), "tool greet: effect"),
        (greeting(risk="low"), "tool greet: risk"),
    ],
)
def test_removals_replacements_and_laxer_rules_need_approval(newer: AgentSpec, part: str) -> None:
    (change,) = changes(version().definition, newer.definition)
    assert (change.part, change.asks) == (part, True)


def test_dropping_an_approval_or_a_secret_needs_approval() -> None:
    careful = greeting(approval=True, secret_args=frozenset({"name"}))
    found = changes(careful.definition, version().definition)
    assert {change.part: change.asks for change in found} == {
        "tool greet: approval": True,
        "tool greet: secret": True,
    }


def test_the_mode_every_call_counts_for_each_tool() -> None:
    stricter = changes(version().definition, version(approvals="every_call").definition)
    assert not any(change.asks for change in stricter)
    laxer = changes(version(approvals="every_call").definition, version().definition)
    assert {change.part for change in laxer if change.asks} == {
        "tool greet: approval",
        "sub-agent helper: approval",
    }


def test_a_tool_that_has_become_a_write_is_named() -> None:
    assert writes(version().definition, greeting(effect="write").definition) == ("greet",)
    assert writes(greeting(effect="write").definition, version().definition) == ()
    assert writes(version(tools=[]).definition, greeting(effect="write").definition) == ()


@pytest.mark.django_db
def test_a_version_is_published_once_by_its_fingerprint() -> None:
    publish(registry_of(version()))
    first = AgentVersion.objects.get()
    publish(registry_of(version()))
    assert AgentVersion.objects.get().published_at == first.published_at
    (found,) = published.versions([first.fingerprint]).values()
    assert (found.agent, found.definition) == ("greeter", version().definition)


@pytest.mark.django_db
def test_a_worker_compares_its_agent_with_a_published_version() -> None:
    publish(registry_of(version()))
    _later()
    publish(registry_of(greeting(effect="write")))
    old, new = (
        AgentEffects(registry_of(version())),
        AgentEffects(registry_of(greeting(effect="write"))),
    )
    before, after = version().fingerprint, greeting(effect="write").fingerprint
    assert new.compare_version("greeter", after) is None
    found = new.compare_version("greeter", before)
    assert found is not None
    assert (found.older, found.asks, found.writes) == (False, True, ("greet",))
    assert found.agent.fingerprint == after
    back = old.compare_version("greeter", after)
    assert back is not None
    assert back.older
    with pytest.raises(UnknownAgent):
        new.compare_version("stranger", before)


@pytest.mark.django_db
@pytest.mark.parametrize("facts", ['{"name": "greeter"}', "not JSON"])
def test_a_description_changed_in_the_database_is_rejected(facts: str) -> None:
    publish(registry_of(version()))
    AgentVersion.objects.update(facts=facts)
    new = AgentEffects(registry_of(version(tools=[greet, replace(greet, name="wave")])))
    found = new.compare_version("greeter", version().fingerprint)
    assert found is not None
    assert [(change.part, change.asks) for change in found.changes] == [("version", True)]


def _later() -> None:
    """Date all published versions back by a day."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE agents_agentversion SET published_at = published_at - interval '1 day'"
        )


@pytest.mark.django_db
@pytest.mark.parametrize("command", ["promote_version", "newest"])
def test_promoting_a_version_takes_a_release_back(
    command: str, caplog: pytest.LogCaptureFixture
) -> None:
    publish(registry_of(version()))
    _later()
    publish(registry_of(greeting(risk="high")))
    old = AgentEffects(registry_of(version()))
    after = greeting(risk="high").fingerprint
    met = old.compare_version("greeter", after)
    assert met is not None
    assert met.older
    call_command(command, "greeter", version().fingerprint[:20])
    assert ("is now promote_version" in caplog.text) == (command == "newest")
    met = old.compare_version("greeter", after)
    assert met is not None
    assert (met.older, met.asks) == (False, True)


@pytest.mark.django_db
def test_a_version_that_is_to_be_the_newest_must_be_one() -> None:
    publish(registry_of(version()))
    publish(registry_of(greeting(risk="high")))
    with pytest.raises(CommandError, match="more than one version of greeter begins with sha256:"):
        call_command("promote_version", "greeter", "sha256:")
    with pytest.raises(CommandError, match="no version of stranger begins with sha256:"):
        call_command("promote_version", "stranger", "sha256:")
