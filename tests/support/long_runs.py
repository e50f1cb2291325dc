"""Runs that are long enough to be compacted, so that their journals can be shortened."""

import threading
from dataclasses import replace
from uuid import UUID

import pytest
from django.test import override_settings

from runtime.control import verification
from runtime.core.values.call_options import CompactionOptions
from runtime.core.values.enums import EffectClass
from runtime.models import JournalEntry
from runtime.ports.agents import AgentInfo
from runtime.ports.effects import ModelAnswer, ModelRequest, Outcome, ToolResult
from runtime.store import pool
from runtime.upkeep import journals
from runtime.upkeep.retention_rules import parse
from tests.support.fake_ports import FakeEffects, FakeTool, Script, ask, say, turns
from tests.support.office import NEWCOMER, Office, OfficeEffects

READ = FakeTool(effect=EffectClass.READ, body=lambda request: ToolResult(value="x" * 50))
EVERY = 8  # each such call needs an approval


class Compacting(FakeEffects):
    """Agents whose frames are compacted every few turns."""

    def agent(self, name: str) -> AgentInfo:
        return replace(super().agent(name), compaction=CompactionOptions(messages=7))


def plays(calls: int, gates_from: int = 0) -> Script:
    """Calls a tool so often, each EVERY calls from then on the gated one, and then answers."""

    def reply(request: ModelRequest) -> Outcome:
        if request.summary:
            return ModelAnswer(reply=None, text="so far")
        last = [m for m in request.messages if m["role"] == "model"][-1:]
        done = int(last[0]["calls"][0][1:].split(".")[0]) if last else 0
        if done == calls:
            return say("done")
        is_gated = done + 1 >= gates_from and (done + 1) % EVERY == 0
        return ask(("gated" if is_gated else "read", {"n": done + 1}))

    return reply


def shortened(stop: threading.Event | None = None) -> int:
    with pool.open_own() as own:
        return journals.shorten_all(own, stop or threading.Event())


def positions(run: UUID) -> list[int]:
    rows = JournalEntry.objects.filter(run_id=run).order_by("position")
    return list(rows.values_list("position", flat=True))


def findings(run: UUID) -> list[str]:
    return [f"{one.subject}: {one.problem}" for one in verification.verify(run).findings]


def long_office_run(office: Office, *, archives: bool = False) -> UUID:
    """A run at a gate that it opened in an entry which was removed: its sub-agent went on meanwhile."""
    really = OfficeEffects.agent

    def compacting(self: OfficeEffects, name: str) -> AgentInfo:
        return replace(really(self, name), compaction=CompactionOptions(messages=7), plan=None)

    office.effects.tools["read"] = READ
    gated = ("set_privileges", {"username": "newhire", "security_level": 3})
    office.effects.agents = {
        "hr_onboarding": turns(ask(gated, ("account_agent", NEWCOMER)), say("done")),
        "account_agent": plays(EVERY - 1),
    }
    rules = {"SIGNOFF_HISTORY_DAYS": 0.0, "SIGNOFF_ARCHIVE": parse("30") if archives else ()}
    with override_settings(**rules), pytest.MonkeyPatch.context() as patch:
        patch.setattr(OfficeEffects, "agent", compacting)
        run = office.start()
        assert shortened() > 10
    return run
