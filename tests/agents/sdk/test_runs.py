"""What authors declare, in runs in memory: inputs, instructions, results of tools and agents, summaries and holds."""

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Literal
from uuid import uuid4

import pytest
from pydantic import AfterValidator, BaseModel, Field, model_validator
from pydantic_ai.messages import ModelResponse, TextPart
from typing_extensions import TypedDict

from agents.llm.messages import build_model_tools, convert_messages
from agents.llm.replies import convert_provider_reply
from agents.sdk import Compaction, Holds, ToolContext, tool
from agents.sdk.spec import ToolSpec
from agents.testing import Flow, Turn, answer, call, drive, say, together
from runtime.core.run.events import AgentChanged, FrameOpened, ModelReplied
from runtime.ports.effects import ToolFailure, ToolResult, Unknown
from tests.support.specs import spec_of

X = {"name": "x"}
BEGINS, ENDS = "2030-01-01T00:00:00Z", "2030-01-02T00:00:00Z"
BACKWARDS = {"begins": ENDS, "ends": BEGINS}
told: list[str | None] = []
asked: list[str] = []
WHOLE = {"euros": 9, "parts": ["a"], "kind": "fixed"}


class Trip(BaseModel):
    place: str = "Bern"
    begins: datetime
    ends: datetime
    people: list[Annotated[str, AfterValidator(str.strip)]] = []

    @model_validator(mode="after")
    def _in_order(self) -> "Trip":
        if self.ends < self.begins:
            raise ValueError("it ends before it begins")
        return self


class Broken(BaseModel):
    name: Annotated[str, AfterValidator(lambda name: {}[name])]


trips = spec_of("trips", input=Trip)


def test_the_agent_gets_the_input_as_its_model_returns_it() -> None:
    given = {"begins": "2030-01-01T00:00:00+00:00", "ends": ENDS, "people": [" Ada "]}
    run = drive(trips, given, model=[lambda turn: say(json.dumps(turn.input))])
    read = {"place": "Bern", "begins": BEGINS, "ends": ENDS, "people": ["Ada"]}
    assert json.loads(run.output) == read


@pytest.mark.parametrize(
    ("model", "given", "why"),
    [
        (Trip, {"begins": "soon", "ends": "later"}, ["input.begins: Input", "input.ends: Input"]),
        (Trip, BACKWARDS, ["input: Value error, it ends before it begins"]),
        (Broken, X, ["input: its model Broken failed: KeyError: 'x'"]),
    ],
)
def test_refused_input_ends_the_run(model: type[BaseModel], given: Any, why: list[str]) -> None:
    run = drive(spec_of("trips", input=model), given)
    assert run.status == "failed"
    begin, said = str(run.reason).split(" its input: ")
    assert begin == "trips does not take"
    assert [one[: len(wanted)] for one, wanted in zip(said.split("; "), why, strict=True)] == why


def test_a_sub_agent_that_refuses_its_input_is_told_to_the_model() -> None:
    office = spec_of("office", subagents=[trips])
    run = drive(office, X, model=[call("trips", **BACKWARDS), say("Then not.")])
    assert run.output == "Then not."
    assert "arguments: Value error, it ends before it begins" in str(run)


class Case(BaseModel):
    language: str = "English"


def friendly(case: Case) -> str:
    asked.append(case.language)
    return f"Answer in {case.language}."


def short(case: Case) -> str:
    return f"""
        Be brief,
        in {case.language}.
    """


def failing(case: Case) -> str:
    raise LookupError(case.language)


def empty(case: Case) -> str:
    return " "


def no_text(case: Case) -> str:
    return "\ud800"


def listening(_messages: Any, info: Any) -> Any:
    told.append(info.instructions)
    return call("nothing") if told == ["Answer in French."] else say("Done.")


def instructed(instructions: Any = friendly) -> Any:
    return spec_of("desk", instructions=instructions, input=Case, holds=Holds(every=1))


def released(instructions: Any) -> Flow:
    """A run that stopped before its second reply, on a release with these instructions."""
    told.clear()
    run = drive(instructed(), {"language": "French"}, model=listening)
    return run.deploy(instructed(instructions)).go_on()


def test_instructions_are_made_once_and_written_down() -> None:
    told.clear()
    asked.clear()
    run = drive(instructed(), {}, model=listening)
    assert (told, asked) == (["Answer in English."], ["English"])
    (opened,) = [event for event in run.events if isinstance(event, FrameOpened)]
    assert (opened.instructions, run.instructions) == (told[0], told[0])
    assert opened.prompt != instructed().prompt


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (failing, "their function failing failed: LookupError: English"),
        (empty, "their function empty must return a text of 1 to"),
        (no_text, "contains half of a surrogate pair"),
    ],
)
def test_a_failing_function_ends_the_run(function: Callable[[Case], str], why: str) -> None:
    told.clear()
    run = drive(instructed(function), {}, model=listening)
    assert (run.status, told) == ("failed", [])
    assert f"desk does not take its input: instructions: {why}" in str(run.reason)


def test_a_changed_function_is_a_version_that_makes_new_instructions() -> None:
    run = released(short)
    ((change,),) = [one.changes for one in run.events if isinstance(one, AgentChanged)]
    first = change.before.splitlines()[0]
    assert (first, change.asks) == ("def friendly(case: Case) -> str:", False)
    assert run.instructions == told[-1] == "Be brief,\nin French."
    broken = released(failing)
    assert broken.status == "failed"
    assert "their function failing failed: LookupError: French" in str(broken.reason)


class Size(StrEnum):
    SMALL = "small"


class Parcel(BaseModel):
    sent: datetime
    price: Decimal
    size: Size = Size.SMALL
    carrier: str = Field(default="post", serialization_alias="by")


class Loose(TypedDict):
    known: str


def called(spec: ToolSpec) -> Flow:
    desk = spec_of("desk", tools=[spec])
    return drive(desk, X, model=[call(spec.name), say("Done.")], business_key="k-1")


def test_models_moments_and_the_like_become_json() -> None:
    @tool(effect="read")
    async def parcels() -> dict[str, tuple[Parcel, ...]]:
        """Looks."""
        await asyncio.sleep(0)
        sent = datetime(2030, 1, 2, 3, 4, tzinfo=UTC)
        return {"A": (Parcel(sent=sent, price=Decimal("1.50")),)}

    parcel = {"sent": "2030-01-02T03:04:00Z", "price": "1.50", "size": "small", "by": "post"}
    assert called(parcels).calls[0].outcome == ToolResult(value={"A": [parcel]})
    assert parcels.result_schema is not None
    assert "by" in parcels.result_schema["$defs"]["Parcel"]["properties"]


def test_json_stays_as_it_is_with_all_its_keys() -> None:
    @tool(effect="read")
    def look(context: ToolContext) -> Loose:
        """Looks."""
        more = [context.requester, context.business_key, context.input]
        return {"known": "x", "more": more}  # type: ignore[typeddict-unknown-key]

    found = {"known": "x", "more": ["ada", "k-1", X]}
    assert called(look).calls[0].outcome == ToolResult(value=found)


def test_what_the_code_of_an_author_changes_is_not_changed_in_the_run() -> None:
    numbers: list[int] = []

    @tool(effect="read")
    def grow(context: ToolContext) -> list[int]:
        """Grows."""
        context.input["name"] = "changed"
        numbers.append(len(numbers))
        return numbers

    def grow_again(turn: Turn) -> ModelResponse:
        turn.results[-1].content.append("by the script")
        return call("grow")

    def show(turn: Turn) -> ModelResponse:
        return say(json.dumps([turn.input, *[result.content for result in turn.results]]))

    def look_at(messages: Any) -> str | None:
        for result in messages[-1].get("results", ()):
            result["content"].append("by the rule")
        return None

    agent = spec_of("growing", tools=[grow], holds=Holds(when=look_at))
    flow = drive(agent, X, model=[call("grow"), grow_again, grow_again, show])
    assert json.loads(flow.output) == [X, [0], [0, 1], [0, 1, 2]]


def test_a_result_of_another_type_is_a_failure_after_the_call() -> None:
    def act() -> dict[str, int]:
        """Acts."""
        return {"hunter2": "2"}  # type: ignore[dict-item]

    error = "act ran, but its result is not of its type"
    place = ": result.hunter2: Input should be a valid integer"
    read = called(tool(effect="read")(act)).calls[0].outcome
    secret = called(tool(effect="read", secret_result=True)(act)).calls[0].outcome
    assert (read, secret) == (ToolFailure(error=error + place), ToolFailure(error=error))
    lost = {"happened": True, "result": None, "problem": error + place}
    assert called(tool()(act)).calls[0].outcome == ToolResult(value=lost)

    def photograph() -> bytes:
        """Take a photograph."""
        return b"\xff"

    outcome = called(tool()(photograph)).calls[0].outcome
    assert "its result is not JSON: UnicodeDecodeError" in str(outcome)


def test_an_async_tool_is_cancelled_at_its_deadline() -> None:
    ended = []

    @tool(deadline=0.05)
    async def act() -> None:
        """Acts."""
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    run = called(act)
    assert isinstance(run.calls[0].outcome, Unknown)
    assert (run.gate.kind, ended) == ("in_doubt", ["cancelled"])


class Quote(BaseModel):
    euros: int = Field(ge=1)
    parts: list[str] = []
    kind: Literal["fixed", "open"] = "fixed"


@tool(effect="read")
def step(number: int) -> int:
    """Count."""
    return number


quotes = spec_of("quotes", tools=[step], output=Quote)


@pytest.mark.parametrize(
    ("reply", "kept"),
    [
        (answer(Quote(euros=9, parts=["a"])), True),
        (answer({"euros": 9, "parts": ["a"]}), False),
        (say('{"euros": 9, "parts": ["a"]}'), False),
    ],
)
def test_a_result_is_stored_once_as_its_model_returns_it(reply: Any, kept: bool) -> None:
    run = drive(quotes, X, model=[reply])
    assert (run.status, run.output) == ("completed", WHOLE)
    (replied,) = [event for event in run.events if isinstance(event, ModelReplied)]
    assert (replied.output, replied.output_kept) == (WHOLE, kept)
    assert (replied.reply == {"parts": [{"part_kind": "tool-call"}]}) is kept


def test_a_text_is_no_typed_result_and_the_model_is_told() -> None:
    heard: list[str] = []

    def model(messages: Any, _: Any) -> Any:
        heard.extend(str(part.content) for part in messages[-1].parts)
        return say("Nine euros.") if len(heard) == 1 else answer(WHOLE)

    assert drive(quotes, X, model=model).output == WHOLE
    assert heard[-1].startswith("This answer could not be taken: give the final answer by calling")


def test_a_result_beside_other_calls_comes_too_early() -> None:
    early = together(call("step", number=1), answer(WHOLE))
    run = drive(quotes, X, model=[early, answer(WHOLE)])
    assert (run.output, [made.tool for made in run.calls]) == (WHOLE, ["step"])
    assert "final_answer is called once and alone" in str(run)


def test_the_caller_of_an_agent_is_given_its_result_as_json() -> None:
    def receive(turn: Turn) -> Any:
        return say(json.dumps([one.content for one in turn.results]))

    boss = spec_of("boss", subagents=[quotes])
    run = drive(boss, X, models={"boss": [call("quotes", **X), receive], "quotes": [answer(WHOLE)]})
    assert json.loads(run.output) == [WHOLE]


def test_a_result_that_people_write_after_goes_back_as_text() -> None:
    reply = convert_provider_reply(quotes, answer(WHOLE))
    said = {"reply": reply.reply, "text": reply.text, "calls": [], "output": reply.output}
    messages = (
        {"role": "input", "content": X},
        {"role": "model", **said},
        {"role": "message", "by": "ada", "content": "And in dollars?"},
    )
    back = convert_messages(quotes, uuid4(), "0", messages)[1]
    assert isinstance(back, ModelResponse)
    (part,) = back.parts
    assert isinstance(part, TextPart)
    assert json.loads(part.content) == WHOLE


def test_a_model_must_call_a_tool_unless_it_sums_up() -> None:
    asking, summing = build_model_tools(quotes), build_model_tools(quotes, summary=True)
    assert [one.name for one in asking.output_tools] == ["final_answer"]
    assert (asking.allow_text_output, summing.allow_text_output) == (False, True)
    assert convert_provider_reply(quotes, say("So far."), summary=True).calls == ()


def counts(turn: Turn) -> Any:
    """Counts to six by its conversation: the summary of removed messages, and the last result."""
    if turn.sums_up:
        return say(f"{turn.results[-1].content}")
    done = turn.results[-1].content if turn.results else int(turn.summary or 0)
    if done == 6:
        return say(f"counted to {done}, of which {turn.summary or 0} are summed up")
    return call("step", number=done + 1)


def counting(**options: Any) -> Flow:
    return drive(spec_of("counter", tools=[step], **options), X, model=[counts] * 12)


def summed_up(messages: tuple[dict[str, Any], ...]) -> str:
    """Summarise as an author's function: return the last result if it is the requested one."""
    number = messages[-2]["reply"]["parts"][-1]["args"].pop("number")
    assert messages[-1]["results"].pop()["content"] == number
    return str(number)


def broken(messages: tuple[dict[str, Any], ...]) -> str:
    raise KeyError("result")


@pytest.mark.parametrize("summarise", [None, summed_up, broken], ids=["model", "author", "broken"])
def test_a_frame_goes_on_from_its_summary(summarise: Any) -> None:
    flow = counting(compaction=Compaction(messages=5, summarise=summarise))
    if summarise is broken:
        assert (flow.status, flow.reason) == ("failed", "KeyError: 'result'")
        return
    assert flow.output == "counted to 6, of which 5 are summed up"
    assert [made.args["number"] for made in flow.calls] == [1, 2, 3, 4, 5, 6]


def why(holds: Holds, turn: int, seconds: float = 0.0) -> str:
    return holds.reason_to_stop(
        agent="a", turn=turn, seconds=seconds, messages=({"role": "input"},)
    )


def test_rules_count_replies_and_time_and_look_at_messages() -> None:
    every, after = Holds(every=2), Holds(after=60)
    assert [bool(why(every, turn)) for turn in range(5)] == [False, False, True, False, True]
    assert [bool(why(after, 1, at)) for at in (0, 59.9, 60)] == [False, False, True]
    assert not why(after, 0, 100)  # it counts from the first reply on
    assert why(Holds(when=lambda messages: "too long" if messages else None), 1) == "too long"
    assert why(Holds(when=lambda messages: None), 1) == ""
    assert why(Holds(), 7, 1e9) == ""


def test_a_flow_stops_where_the_rule_says_and_goes_on_or_ends() -> None:
    flow = counting(holds=Holds(every=4))
    assert (flow.status, flow.gate.kind, len(flow.calls)) == ("suspended", "hold", 4)
    assert flow.gate.sentence == "counter stops after every 4 replies, and this was number 4"
    assert flow.settle("continue").output == "counted to 6, of which 0 are summed up"
    flow = counting(holds=Holds(when=broken))
    assert flow.gate.sentence == "The hold rules of counter failed: KeyError"
    flow.settle("stop", reason="it only counts")
    assert (flow.status, flow.reason) == ("cancelled", "it only counts")
