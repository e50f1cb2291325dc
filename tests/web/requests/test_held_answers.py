"""A held answer or message: its reviewers read it in the request, and its requester nowhere before the release."""

import json
import re
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from django.core import mail
from django.test import Client

from agents.catalogue.published import publish
from agents.effect_handler import AgentEffects
from agents.sdk import Answer, agent
from agents.sdk.scripts import Reply, Turn, call, say, script, together
from agents.sdk.spec import AgentSpec
from agents.tools.requester import tell_requester
from approvals.decisions.decide import decide
from approvals.models import Approval
from approvals.port.adapter import ApprovalService
from runtime.core.run.events import ModelReplied
from runtime.core.values.enums import Risk
from runtime.errors import Forbidden
from runtime.models import Run
from runtime.ports.access import Actor
from runtime.store import pool
from runtime.store.tables import journal
from tests.support.api_client import Caller, field_of
from tests.support.engine import HandDriven, start_run, stored_texts
from tests.support.pages import send, shows, text, text_of
from tests.support.specs import Question, registry_of

# Each test releases another one, because released answers stay in the tables.
DRAFT, BETTER, EDITED, EARLY, LATER = (
    f"canary-{one}-text" for one in ("draft", "better", "edited", "early", "later")
)


@script
def _writer(turn: Turn) -> Reply:
    told = turn.result("final_answer")
    return say(DRAFT if told is None else f"{BETTER} after {told.why}")


WRITER = agent(
    name="writer",
    description="Writes an answer.",
    instructions="Write.",
    input=Question,
    model=_writer,
    answer=Answer(deny_reasons=["Too harsh."]),
)


@script
def _teller(turn: Turn) -> Reply:
    told = turn.result("tell_requester")
    if told is None:
        return together(say(f"First {EARLY}"), call("tell_requester", message=EARLY))
    if told.denied:
        return call("tell_requester", message=f"{LATER} after {told.why}")
    return say("All done.")


TELLER = agent(
    name="teller",
    description="Tells how far it is.",
    instructions="Tell.",
    input=Question,
    model=_teller,
    tools=[tell_requester(deny_reasons=["Too early."])],
)


DANGEROUS = agent(
    name="dangerous",
    description="Writes a dangerous answer.",
    instructions="Write.",
    input=Question,
    model=_writer,
    answer=Answer(risk=Risk.HIGH),
)


class Desk(HandDriven):
    """A worker with the agents whose texts are held, and the real approvals."""

    def __init__(self) -> None:
        registry = registry_of(WRITER, DANGEROUS, TELLER)
        publish(registry)
        super().__init__(AgentEffects(registry), ApprovalService())

    def start(self, spec: AgentSpec = WRITER) -> Approval:
        run = start_run(spec.name, {"text": "go"})
        self.advance_once(run)
        return Approval.objects.get(run=run)


@pytest.fixture
def desk(by_hand: None, cast: object) -> Iterator[Desk]:
    desk = Desk()
    yield desk
    desk.close()


def _seen_by(reader: Client, api: Caller, run: UUID, approval_id: UUID) -> str:
    """Everything that a reader can open about the run and its request."""
    pages = [f"/runs/{run}/", f"/runs/{run}/?tab=transcript", f"/runs/{run}/?step=0/c1.0", "/runs/"]
    pages += [f"/a/{approval_id}/", "/inbox/", "/inbox/?view=others", "/decisions/"]
    found = [text(reader, page) for page in pages]
    calls = [f"/runs/{run}", f"/runs/{run}/journal", f"/runs/{run}/events", "/runs"]
    calls += [f"/runs/{run}/agent-messages"]
    calls += [f"/approvals/{approval_id}", f"/approvals/{approval_id}/questions", "/approvals"]
    answers = [api.get(call) for call in calls]
    assert [one.status_code for one in answers].count(200) >= len(calls) - 1
    return "\n".join([*found, *(one.content.decode() for one in answers)])


def test_only_reviewers_read_a_held_answer_before_its_release(
    desk: Desk, ada: Client, bea: Client, admin: Client, ada_api: Caller, bea_api: Caller
) -> None:
    approval = desk.start()
    run = approval.run_id
    assert not [one for one in (DRAFT, BETTER) if one in stored_texts()]
    seen = _seen_by(ada, ada_api, run, approval.id)
    assert "canary" not in seen
    shows(ada, approval, "only its reviewers read it")
    shows(ada, f"/runs/?q={DRAFT}", "No matching runs")
    shows(ada, run, "Give the answer to the requester", "final_answer")
    assert "canary" not in text(admin, f"/runs/{run}/?tab=transcript")
    shows(
        bea,
        approval,
        DRAFT,
        "Too harsh.",
        "as for all who may read the run",
        hides=["Reason given by the agent"],
    )
    assert bea_api.get(f"/approvals/{approval.id}").json()["args"] == {"answer": DRAFT}
    shows(bea, f"/runs/{run}/?tab=transcript", "its reviewers read it on the page", hides=[DRAFT])
    with pytest.raises(Forbidden):
        decide(
            approval_id=approval.id,
            verdict="approve",
            digest=approval.approval_digest,
            reason="",
            actor=Actor(person="ada"),
        )
    last = Run.objects.get(id=run).position
    shows(ada, f"/runs/{run}/fork/{last}/", hides=["Your arguments as JSON"])
    guess = {"kind": "arguments", "frame": "0", "call": "c1.0", "value": {"answer": DRAFT}}
    refused = ada_api.post(f"/runs/{run}/fork", {"position": last, "change": guess})
    assert (refused.status_code, "unchanged" in refused.content.decode()) == (422, False)
    send(bea, approval, "deny", reason="Be kind.")
    desk.advance_once(run)
    again = Approval.objects.get(run=run, status="pending")
    seen = _seen_by(ada, ada_api, run, again.id)
    assert "canary" not in seen
    assert not [one for one in (DRAFT, BETTER) if one in stored_texts()]
    send(bea, again, "approve")
    assert desk.advance_once(run).status == "completed"
    assert "final_answer returned" in desk.heartbeat.measures.stored()
    shows(ada, run, f"{BETTER} after Be kind.", hides=[DRAFT])
    assert json.loads(Run.objects.get(id=run).output or "") == f"{BETTER} after Be kind."
    assert "canary-draft" not in _seen_by(ada, ada_api, run, approval.id)
    assert "canary" not in "".join(str(one.message()) for one in mail.outbox)


def test_a_reviewer_edits_the_answer_in_a_form_and_the_proposed_one_stays_unread(
    desk: Desk, ada: Client, bea: Client
) -> None:
    approval = desk.start()
    shows(bea, f"/a/{approval.id}/edit/", DRAFT)
    review = text_of(send(bea, approval, "edit", **{"in.answer": EDITED}))
    assert DRAFT in review
    assert EDITED in review
    sent = json.dumps({"answer": EDITED})
    send(bea, approval, "edit/approve", arguments=sent)
    approval.refresh_from_db()
    assert approval.status == "approved"
    assert not [one for one in (DRAFT, EDITED) if one in stored_texts()]
    shows(ada, approval, hides=[DRAFT, EDITED])
    assert desk.advance_once(approval.run_id).status == "completed"
    shows(ada, approval.run_id, EDITED, hides=[DRAFT])
    shows(ada, approval, hides=[DRAFT])
    shows(bea, approval, DRAFT, EDITED)
    step = f"/runs/{approval.run_id}/?step={approval.frame}/{approval.call}"
    shows(ada, step, "changed by <bdi>bea", "proposed by the model", hides=[DRAFT])


def test_an_edit_at_high_risk_takes_the_name_that_its_page_shows(
    desk: Desk, ada: Client, bea: Client
) -> None:
    approval = desk.start(DANGEROUS)
    review = text_of(send(bea, approval, "edit", **{"in.answer": EDITED}))
    [name] = re.findall(r"High risk: type <b><bdi>(.*?)</bdi>", review)
    send(bea, approval, "edit/approve", arguments=json.dumps({"answer": EDITED}), confirm=name)
    approval.refresh_from_db()
    assert approval.status == "approved"


def test_the_requester_reads_a_message_of_the_agent_once_it_is_released(
    desk: Desk, ada: Client, bea: Client, admin: Client, ada_api: Caller
) -> None:
    approval = desk.start(TELLER)
    run = approval.run_id

    def told() -> list[Any]:
        found = ada_api.get(f"/runs/{run}/agent-messages").json()
        return [(one["agent"], one["text"], one["at"] is not None) for one in found]

    assert EARLY not in stored_texts()
    assert "canary" not in _seen_by(ada, ada_api, run, approval.id)
    assert "canary" not in text(admin, f"/runs/{run}/?tab=state")
    shows(ada, run, "Message from the agent", "waits for its release")
    shows(ada, approval, "only its reviewers read it")
    shows(admin, "/tools/", "held: only reviewers read it before its release")
    assert told() == [("teller", None, False)]
    shows(bea, approval, EARLY, "Too early.")
    shows(bea, run, "Message from the agent", hides=[EARLY])
    send(bea, approval, "deny", reason="Be exact.")
    shows(ada, run, hides=[EARLY])
    desk.advance_once(run)
    again = Approval.objects.get(run=run, status="pending")
    assert "canary" not in _seen_by(ada, ada_api, run, again.id)
    assert not [one for one in (EARLY, LATER) if one in stored_texts()]
    assert told() == [("teller", None, False)]
    send(bea, again, "approve")
    shows(ada, run, hides=[LATER])
    assert desk.advance_once(run).status == "completed"
    sent = f"{LATER} after Be exact."
    shows(ada, run, "Message from the agent", sent, hides=[EARLY, "waits for its release"])
    shows(ada, f"/runs/{run}/?tab=transcript", sent)
    assert told() == [("teller", sent, True)]
    assert EARLY not in stored_texts() + _seen_by(ada, ada_api, run, approval.id)
    assert Run.objects.get(id=run).output == '"All done."'


def test_a_message_that_was_denied_is_never_shown(
    desk: Desk, ada: Client, bea: Client, ada_api: Caller
) -> None:
    approval = desk.start(TELLER)
    run = approval.run_id
    for _ in range(3):
        send(bea, Approval.objects.get(run=run, status="pending"), "deny", reason="No.")
        desk.advance_once(run)
    assert Run.objects.get(id=run).ended_at is not None
    shows(ada, run, hides=["Message from the agent"])
    assert ada_api.get(f"/runs/{run}/agent-messages").json() == []
    seen = _seen_by(ada, ada_api, run, approval.id)
    assert not [one for one in (EARLY, LATER) if one in seen + stored_texts()]


@pytest.mark.parametrize("sealed", [False, True])
def test_no_reply_given_in_a_fork_gives_a_held_text_away(
    desk: Desk, ada: Client, ada_api: Caller, sealed: bool
) -> None:
    """The form of the fork has the hidden text; a program may have read the sealed one in Postgres."""
    run = desk.start(TELLER).run_id
    with pool.join_transaction() as connection:
        found = [(one.position, e) for one, e in journal.read_history(connection, run).entries]
    position, said = next(
        (position, event)
        for position, entry in found
        for event in entry.events
        if isinstance(event, ModelReplied)
    )
    text = said.text if sealed else '"••••"'
    shows(ada, f"/runs/{run}/fork/{position}/", "Reply of the model", "&quot;••••&quot;")
    calls = [{"tool": "tell_requester", "arguments": {"message": "Hello."}}] if sealed else []
    change = {"kind": "reply", "frame": "0", "value": {"text": text, "calls": calls}}
    refused = ada_api.post(f"/runs/{run}/fork", {"position": position, "change": change})
    assert field_of(refused) == (422, "change.value.text")
