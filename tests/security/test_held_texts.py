"""A held answer or message before its release: who may read it, and where else its words could be."""

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ThinkingPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo
from pytest_django import Settings

from agents.llm.call import text_to_store
from agents.llm.replies import convert_provider_reply
from agents.sdk import Answer, Compaction
from agents.sdk.scripts import answer, call, say
from agents.testing import drive
from approvals.models import Approval
from approvals.people import accounts
from approvals.reads import approval_views
from approvals.rules.policy import Group
from runtime.core.run.events import Compacted
from runtime.core.values.enums import Risk
from runtime.keyring import sealing
from runtime.ports.access import Actor
from tests.agents import test_held_answers as agents
from tests.approvals.policies.office import put_in_force
from tests.support import seeds
from tests.support.seeds import Cast
from tests.support.specs import Question, spec_of

TEXT = "canary: you get nothing"
TOOL = seeds.PATH[-1]
RULE = f"rules: [{{name: Theirs, match: {{tool: {TOOL}}}, people: [ada, bea]}}]"


def _give_right(_: Approval) -> Actor:
    """An admin gives an account of theirs the right to decide, and reads with it at once."""
    accounts.create_person(username="puppet", password=seeds.PASSWORD, groups=[])
    accounts.set_groups("puppet", [Group.REVIEWERS], actor="admin")
    return Actor(person="puppet")


def _review_elsewhere(_: Approval) -> Actor:
    """An admin, who reads each request, reviews those of another rule."""
    return seeds.person("anne", Group.ADMINS, Group.REVIEWERS)


def _change_requester(approval: Approval) -> Actor:
    Approval.objects.filter(pk=approval.pk).update(requester="zed", excluded=["zed"], origin=[])
    return Actor(person="ada")


def _change_readers(approval: Approval) -> Actor:
    Approval.objects.filter(pk=approval.pk).update(risk=Risk.LOW, readers=["person:cora"])
    return seeds.person("cora", Group.REVIEWERS)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("reader", "rule", "is_read"),
    [
        (lambda _: Actor(person="bea"), RULE, True),
        (lambda _: Actor(person="ada"), RULE, False),
        (_give_right, "rules: []", False),
        (_review_elsewhere, RULE, False),
        (_change_requester, RULE, False),
        (_change_readers, RULE, False),
    ],
)
def test_a_held_text_is_for_those_who_may_decide_now(
    cast: Cast, settings: Settings, reader: Callable[[Approval], Actor], rule: str, is_read: bool
) -> None:
    settings.SIGNOFF_COOLING_OFF_SECONDS = 3600
    put_in_force(rule)
    args = {"username": sealing.seal_arg(TOOL, "username", TEXT), "security_level": 3}
    actor = reader(seeds.pending(args=args))
    [approval] = approval_views.list_approvals(actor).items or [None]
    assert (approval is not None and TEXT in str(approval.args)) is is_read


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")
    euros: int


def _quote(answer: str) -> bool:
    return {"refund": True}[answer.split(":", maxsplit=1)[0]]


@pytest.mark.parametrize(
    "flow",
    [
        lambda: agents._drive(
            call("final_answer", canary=1), answer(Strict(euros=4)), output=Strict
        ),
        lambda: agents._drive(say('{"canary": 1}'), answer(Strict(euros=4)), output=Strict),
        lambda: agents._drive(say('{"canary": NaN}'), answer(Strict(euros=4)), output=Strict),
        lambda: agents._tells(call("tell_requester", canary="x"), say("Done.")),
        lambda: agents._drive(say(TEXT), answer=Answer(approval=_quote)),
        lambda: agents._drive(say(TEXT), answer=Answer(risk=_quote)),
    ],
)
def test_no_name_or_error_has_words_of_a_held_text(flow: Callable[[], Any]) -> None:
    assert "canary" not in agents._said(flow())


def test_a_model_is_told_which_field_of_its_held_answer_is_wrong() -> None:
    wrong = call("final_answer", euros="canary")
    flow = agents._drive(wrong, answer(Strict(euros=4)), output=Strict)
    assert "final_answer.euros: Input should be a valid integer" in "\n".join(flow.transcript)


@pytest.mark.parametrize(
    "part",
    [
        lambda: TextPart(sealing.seal_held_text(TEXT)),
        lambda: ThinkingPart(sealing.seal_held_text(TEXT)),
        lambda: ToolCallPart(
            "final_anser", sealing.seal_args("final_anser", {"answer": TEXT}), "b"
        ),
    ],
)
def test_no_model_gets_a_sealed_value_opened_that_it_wrote(part: Callable[[], Any]) -> None:
    """A person who reads Postgres could have any agent repeat one and tell its content."""
    seen: list[str] = []

    def model(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        if len(messages) > 1:
            seen.append(str(messages))
            return say("Done.")
        return ModelResponse(parts=[part(), ToolCallPart("look_up", {"text": "it"}, "a")])

    desk = spec_of("desk", input=Question, model=model, tools=[agents.look_up])
    drive(desk, agents.ASKED)
    [conversation] = seen
    assert "$secret" in conversation
    assert "canary" not in conversation


def test_a_sealed_value_in_a_summary_or_a_cut_reply_is_not_opened_either() -> None:
    spec, token = spec_of("desk", model=agents._say), sealing.seal_held_text(TEXT)
    halves = ModelResponse(parts=[TextPart(token[:9]), TextPart(token[9:])])
    assert sealing.open_text(convert_provider_reply(spec, halves, summary=True).text) == token
    assert sealing.open_text(text_to_store(spec, token)) == token
    compaction = Compaction(messages=4, summarise=lambda _: token)
    flow = agents._drive(*[agents._summed_up] * 4, answer=False, compaction=compaction)
    [summary] = [event.summary for event in flow.events if isinstance(event, Compacted)]
    assert sealing.open_text(summary) == token
