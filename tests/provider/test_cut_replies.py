"""A reply that a message cuts off, or that is lost with its worker: what each provider gets next."""

import json
from typing import Any

import pytest
from django.db import transaction
from pydantic import BaseModel
from pytest_django import Settings

from agents.sdk import agent
from agents.sdk.scripts import CUT, CUT_BY
from runtime import broker
from runtime.control.interventions import send_message
from runtime.control.start import create
from runtime.models import Run, StoredPartialReply
from tests.support.engine import ADA, Engine, engine_of, events, lose
from tests.support.people import until
from tests.support.provider.wire import SILENCE, Wire, anthropic, chunk, openai, text_part
from tests.support.specs import registry_of
from tests.support.threads import in_thread

BEGINNING = "I have looked at the thr"  # what comes before the silence


class Given(BaseModel):
    """Nothing in particular."""


CLERK = agent(name="clerk", description="Looks.", instructions="Look at the accounts.", input=Given)
WHOLE = f"{BEGINNING}ee accounts, and all are fine."
OPENAI = [chunk({"content": BEGINNING}), SILENCE], openai(WHOLE)
ANTHROPIC = [*anthropic(text_part(BEGINNING))[:3], SILENCE], anthropic(text_part(WHOLE))


def _lose(engine: Engine, run: Run) -> None:
    held = next(iter(engine.heartbeat._claimed.values()))
    held.lost.set()
    held.wake()


@pytest.mark.parametrize(
    ("model", "replies", "tokens"),
    [("fake:m", OPENAI, (61, 67)), ("claude:m", ANTHROPIC, (100, 6))],  # OpenAI tells them last
)
@pytest.mark.parametrize("cause", ["message", "lost"])
def test_the_next_request_says_what_was_cut(
    by_hand: None,
    everything_permitted: None,
    wire: Wire,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    model: str,
    replies: Any,
    tokens: tuple[int, int],
    cause: str,
) -> None:
    monkeypatch.setattr("agents.llm.call.KEEP_SECONDS", 0.02)
    monkeypatch.setattr(broker, "send_all", lambda hints: None)
    settings.SIGNOFF_MODEL = model
    wire.answers += replies
    with engine_of(registry_of(CLERK)) as engine:
        with transaction.atomic():
            run = create(agent="clerk", input={}, requester=ADA).run
        worker = in_thread(lambda: engine.advance_once(run))
        until(lambda: StoredPartialReply.objects.filter(run_id=run).first(), "a part of the reply")
        if cause == "message":
            send_message(run=run, actor=ADA, text="Only two.", cut_reply=True)
        else:
            _lose(engine, Run.objects.get(id=run))
        worker.join(20)
        if cause == "lost":
            lose(run)
            engine.go_on(run)
    assert Run.objects.get(id=run).output == json.dumps(WHOLE)
    (retry,) = [one for one in events(run) if one["type"] == "RetryScheduled"]
    known, estimated = tokens
    assert (retry["cause"], retry["partial"], retry["usage"]) == (
        cause,
        BEGINNING,
        {"input_tokens": known, "output_tokens": 6, "estimated_tokens": estimated},
    )
    _, second = wire.bodies
    sent = json.dumps(second["messages"][-2:])
    facts = {"cut_by": CUT_BY[cause], "beginning": BEGINNING, "cut_after_tokens": 6}
    assert json.dumps(f"{CUT}{json.dumps(facts)[:-1]}, ")[1:-1] in sent
    assert ("Only two." in sent) is (cause == "message")
