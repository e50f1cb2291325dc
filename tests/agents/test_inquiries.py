"""A person asks the agent about a call that waits: its model answers beside its conversation, which stays as it is."""

import functools
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse
from pydantic_ai.models.function import AgentInfo

from agents.sdk import agent, tool
from agents.sdk.scripts import Turn, script
from agents.testing import Flow, call, drive, say, together
from runtime.core.documents.continuations import Conversations
from runtime.core.run.events import Event, QuestionAnswered, QuestionAsked, QuestionFailed
from runtime.core.run.gates import open_inquiry
from tests.support.specs import Input, spec_of

HEARD: list[list[ModelMessage]] = []
PAID: list[int] = []


@tool(approval=True, sentence="Pay {euros} euros")
def pay(euros: int) -> int:
    """Pays."""
    PAID.append(euros)
    return euros


@tool()
def price(number: str) -> str:
    """Looks a price up."""
    return f"{number} costs 40"


def model(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    """Look the price up and pay, together; answer a question with a text and a call."""
    HEARD.append(list(messages))
    last = messages[-1].parts[-1]
    if "asks" in str(getattr(last, "content", "")):
        return together(say("It costs that much."), call("pay", euros=4000))
    made = sum(isinstance(one, ModelResponse) for one in messages)
    return (together(call("price", number="A-1"), call("pay", euros=40)), say("Done."))[made]


@pytest.fixture(autouse=True)
def _nothing_heard() -> None:
    HEARD.clear()
    PAID.clear()


def at_desk(by: Any = model) -> Flow:
    return drive(spec_of("desk", tools=[pay, price]), {"name": "A-1"}, model=by)


def contents(messages: list[ModelMessage]) -> list[list[str]]:
    return [[str(getattr(part, "content", "")) for part in one.parts] for one in messages]


def of_questions(flow: Flow) -> list[Event]:
    kinds = QuestionAsked | QuestionAnswered | QuestionFailed
    return [event for event in flow.events if isinstance(event, kinds)]


def test_the_model_answers_with_the_conversation_and_the_run_stays_as_it_was() -> None:
    flow = at_desk()
    before = flow._worker.now
    assert flow.ask("Why so much?") == "It costs that much."
    asked = HEARD[-1]
    assert contents(asked)[:1] == contents(HEARD[0]) == [['{"name": "A-1"}']]
    texts = [text for part in contents(asked)[-2:] for text in part]
    assert (texts[0], texts[1].startswith("This call has not been made")) == ("A-1 costs 40", True)
    assert all(word in texts[2] for word in ("pay (c1.1)", "bea asks: Why so much?", "no tool"))
    after = flow._worker.now
    assert (after.frames["0"].messages, after.frames["0"].calls) == (
        before.frames["0"].messages,
        before.frames["0"].calls,
    )
    assert (after.pending, after.questions, len(flow.gates)) == (before.pending, (), 1)
    assert after.usage["input_tokens"] > before.usage["input_tokens"]
    assert after.spent.tokens > before.spent.tokens
    assert flow.approve().output == "Done."
    assert PAID == [40]
    assert "asks" not in str(HEARD[-1])


def test_an_agent_below_another_is_asked_itself() -> None:
    below = spec_of("below", tools=[pay, price])
    boss = agent(
        name="boss",
        description="Has it paid.",
        instructions="Have it paid.",
        input=Input,
        model=script(lambda turn: call("below", name="A-1")),
        subagents=[below],
    )
    flow = drive(boss, {"name": "A-1"}, models={"below": model})
    assert flow.ask("Why?") == "It costs that much."
    [asked, _] = of_questions(flow)
    assert isinstance(asked, QuestionAsked)
    assert asked.frame == "0.c1.0"


def explain(turn: Turn) -> str:
    return f"{turn.question} Because {turn.input['name']}."


def test_a_script_answers_only_if_its_author_wrote_how() -> None:
    def step(turn: Turn) -> Any:
        return together(say("It is due."), call("pay", euros=40))

    assert (
        at_desk(script(step)).ask("Why?") == "I am a script and cannot answer questions. It is due."
    )
    assert (
        at_desk(functools.partial(script, answers=explain)(step)).ask("Why?") == "Why? Because A-1."
    )
    listed = at_desk([together(say("Due."), call("pay", euros=40)), say("Done.")])
    assert listed.ask("Why?").endswith("Due.")
    assert listed.approve().output == "Done."


def test_a_failure_ends_the_question_and_it_can_be_asked_again() -> None:
    answers: Iterator[ModelResponse | Exception] = iter(
        [call("price", number="A-1"), ZeroDivisionError(), say("At last.")]
    )

    def unsure(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if "asks" not in str(messages[-1].parts[-1]):
            return model(messages, info)
        found = next(answers)
        if isinstance(found, Exception):
            raise found
        return found

    flow = at_desk(unsure)
    assert flow.ask("Why?") == "the model gave no answer in text"
    assert "ZeroDivisionError" in flow.ask("Why?")
    assert flow.ask("Why?") == "At last."
    assert (len(flow.gates), flow.status) == (1, "suspended")
    assert PAID == []


def test_a_question_ends_with_its_gate_and_outlives_its_worker() -> None:
    flow = at_desk()
    worker = flow._worker
    worker.ask(gate=flow.gate.gate, by="bea", text="Why?")
    [question] = worker.now.questions
    conversations = Conversations()
    for text in flow.journal:
        conversations.read(text)
    assert conversations.shorten_continuation(worker.now) is not None
    worker._take_over()  # before the answer
    assert open_inquiry(worker.now, question.id) == question
    worker.go_on()
    assert [type(event) for event in of_questions(flow)] == [QuestionAsked, QuestionAnswered]
    worker.ask(gate=flow.gate.gate, by="bea", text="And now?")
    worker._work.ready.clear()
    assert flow.approve().output == "Done."
    assert (worker.now.questions, len(of_questions(flow))) == ((), 3)
    assert isinstance(HEARD[-1][-1], ModelRequest)
