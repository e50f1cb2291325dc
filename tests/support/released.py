"""Releases of agents, as their workers publish them."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from django.db.models import F

from agents.catalogue.published import publish
from agents.models import AgentVersion
from agents.registry import Registry
from agents.sdk.spec import AgentSpec
from tests.support.specs import version


def released(spec: AgentSpec) -> str:
    """Publish this version after all others, and return its fingerprint."""
    AgentVersion.objects.update(published_at=F("published_at") - timedelta(days=1))
    publish(Registry(agents={spec.name: spec}))
    return str(spec.fingerprint)


def account_agent(**changed: Any) -> AgentSpec:
    """A version of the agent that asks in the runs of an office."""
    return replace(version(**changed), name="account_agent")
