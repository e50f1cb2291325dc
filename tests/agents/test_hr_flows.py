"""The HR agents: on the engine and in memory, against a real directory and mail server, and turn by turn."""

import json
import re
from typing import Any

import pytest

from agents.effect_handler import AgentEffects
from agents.registry import Registry
from agents.testing import drive
from runtime.core.documents.codec import build_event_documents, decode_entry
from runtime.core.values.enums import EffectClass, Verdict
from runtime.models import Gate
from runtime.reads import entries
from tests.agents.conftest import Directory
from tests.support.engine import Engine, events
from tests.support.mail import Sink
from tests.support.specs import NEWCOMER, Frame

MADE = "The account new.hire was made"
NO_ACCOUNT = "No account was made for new.hire: the username new.hire is taken."
MAILED = "The welcome mail went to new.hire@example.com."
WHY = "because."
BOTH = {
    Verdict.APPROVE: f"{MADE} with security level 3. {MAILED}",
    Verdict.DENY: f"{MADE}, but its privileges were denied: {WHY} {MAILED}",
}
SAID = {
    "hr_onboarding": BOTH,
    "hr_onboarding_single": BOTH,
    "hr_access_bundle": {
        Verdict.APPROVE: f"{MADE}. Security level 3 was granted. Access to intranet was granted.",
        Verdict.DENY: f"{MADE}. Security level 3 was denied: {WHY} Access to intranet was denied: {WHY}",
    },
}


def _plain(events: list[dict[str, Any]]) -> str:
    """Without what differs from run to run: ids, times and what hangs on them."""
    text = json.dumps(events, indent=1)
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<id>", text)
    text = re.sub(r"\b[0-9a-f]{32}\b", "<id>", text)
    text = re.sub(r"<[0-9a-f]{40}@", "<<id>@", text)
    text = re.sub(r'"pyd_ai_[^"]*"', '"<id>"', text)
    text = re.sub(r"sha256:[0-9a-f]{64}", "sha256:…", text)
    return re.sub(r"\d{4}-\d\d-\d\dT[0-9:.]+(Z|\+00:00)", "<time>", text)


@pytest.mark.parametrize("verdict", [Verdict.APPROVE, Verdict.DENY])
@pytest.mark.parametrize("name", SAID)
def test_hr_flows_do_and_journal_the_same_on_engine_and_in_memory(
    engine: Engine, directory: Directory, sink: Sink, hr: Registry, name: str, verdict: Verdict
) -> None:
    why = "because" if verdict is Verdict.DENY else ""
    run = engine.begin(name, NEWCOMER)
    (account,) = directory.accounts()
    assert (account.roles or [], account.entitlements or [], sink.mails) == ([], [], [])
    while run.status == "suspended":
        tools = Gate.objects.filter(run=run.id, state="open").values_list("tool", flat=True)
        run = engine.decide(run, verdict, why, tool=min(tools))
    (account,) = directory.accounts()
    given = [one.value for one in [*(account.roles or []), *(account.entitlements or [])]]
    rights = ["security-level-3", *["application-intranet"] * (name == "hr_access_bundle")]
    assert given == (rights if verdict is Verdict.APPROVE else [])
    assert any(line.startswith("PATCH") for line in directory.requests) is bool(given)
    assert len(sink.mails) == (name != "hr_access_bundle")
    directory.storage.resources = []

    flow = drive(hr.get(name), NEWCOMER)
    while flow.status == "suspended":
        waits = min(gate.tool for gate in flow.gates)
        flow = flow.approve(waits) if verdict is Verdict.APPROVE else flow.deny(why, waits)

    assert flow.status == run.status == "completed"
    assert flow.output == json.loads(run.output or "") == SAID[name][verdict]
    in_memory = [
        event for text in flow.journal for event in build_event_documents(decode_entry(text).events)
    ]
    assert _plain(in_memory) == _plain(events(run.id))


@pytest.mark.parametrize("name", SAID)
def test_the_answer_names_the_level_that_a_person_gave(
    directory: Directory, sink: Sink, hr: Registry, name: str
) -> None:
    flow = drive(hr.get(name), NEWCOMER).edit({"security_level": 2}, "set_privileges")
    while flow.status == "suspended":
        flow = flow.approve()
    assert flow.output == SAID[name][Verdict.APPROVE].replace("level 3", "level 2")


def test_an_approval_waits_in_its_frame(engine: Engine, directory: Directory, sink: Sink) -> None:
    run = engine.begin("hr_onboarding", NEWCOMER)
    stored = entries.read_run_state(run.id) or {}
    frames = {name: frame["agent"] for name, frame in stored["frames"].items()}
    assert frames == {"0": "hr_onboarding", "0.c1.0": "account_agent"}
    (pending,) = stored["pending"]
    assert pending["path"] == ["hr_onboarding", "account_agent", "set_privileges"]
    (account,) = directory.accounts()
    assert account.external_id == f"{run.id}/0.c1.0/c1.0"
    # Another run for the same person makes no account and sends no mail.
    for agent in SAID:
        done = engine.begin(agent, NEWCOMER)
        assert (done.status, json.loads(done.output or "")) == ("completed", NO_ACCOUNT)
        assert not Gate.objects.filter(run=done.id).exists()
    assert (len(directory.accounts()), sink.mails) == (1, [])


def test_failed_calls_are_reported(hr: Registry) -> None:
    def said(agent: str, *results: tuple[str, Any]) -> str:
        frame = Frame(AgentEffects(hr), agent, NEWCOMER)
        for result in results:
            assert frame.ask().calls
            frame.settle(result)
        last = frame.ask()
        assert last.calls == ()
        return last.text

    account = ("returned", {"id": "a-1", "username": "new.hire"})
    away, refused, full = (("failed", why) for why in ("it is away", "it refused", "it was full"))
    assert said("hr_onboarding", away).startswith("No account was made: it is away")
    end = said("hr_onboarding_single", account, refused, full)
    assert end.startswith(
        f"{MADE}, but its privileges could not be set: it refused. The welcome mail was not"
    )


def test_effects_and_gates_are_those_of_the_actions(hr: Registry) -> None:
    found = {tool.name: (tool.effect, tool.approval) for tool in hr.tools()}
    assert found == {
        "create_account": (EffectClass.IDEMPOTENT, False),
        "set_privileges": (EffectClass.IDEMPOTENT, True),
        "grant_application_access": (EffectClass.IDEMPOTENT, True),
        "send_welcome_mail": (EffectClass.WRITE, False),
    }
    assert all(agent.steps for agent in hr.agents.values())
