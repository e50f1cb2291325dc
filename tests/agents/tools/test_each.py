"""`for_each`: a sub-agent for each item, a few at once; outcomes are in order, and one that fails loses no other."""

from typing import Annotated, Any
from uuid import UUID

import pytest
from pydantic import BaseModel, Field
from pytest_django import Settings

from agents.errors import DefinitionError
from agents.llm import providers
from agents.llm.replies import convert_person_reply
from agents.sdk import agent, tool
from agents.sdk.scripts import EDITED, REPORTED, Reply, Turn, call, say, script
from agents.sdk.spec import EACH
from agents.testing import drive
from agents.tools.each import MAX_RESULTS, for_each
from runtime.core.documents.codec import decode_entry
from runtime.core.run.continuation import GivenReply
from runtime.core.run.events import FrameClosed, FrameOpened, ModelReplied, Proposal
from runtime.core.values.ids import ROOT
from runtime.core.values.json_values import measure_size
from runtime.core.values.limits import MAX_ITEMS, MAX_REPLY
from runtime.reads.journal import JournalLine, Remaining
from runtime.reads.trace.fold import fold
from runtime.reads.transcript import Transcript, build_transcript

PAID: list[str] = []


class Bill(BaseModel):
    number: Annotated[str, Field(min_length=1)]


@tool(effect="idempotent", approval=True, sentence="Pay {number}")
def pay(number: str) -> str:
    """Pay a bill."""
    PAID.append(number)
    return f"{number} is paid"


@script
def paying(turn: Turn) -> Reply:
    number = turn.input["number"]
    if number.startswith("broken"):
        raise ValueError("this model fails")
    if number.startswith("say "):
        return say(number.removeprefix("say "))
    result = turn.result("pay")
    if result is None:
        return call("pay", number=number)
    return say(str(result.content) if result.ok else f"not paid: {result.why}")


payer = agent(name="payer", description="Pays.", instructions="Pay.", input=Bill, model=paying,
              tools=[pay])  # fmt: skip
each = for_each(payer, at_once=2)


def bills(*numbers: str) -> dict[str, Any]:
    return {"items": [{"number": number} for number in numbers]}


def results(run: Any) -> list[Any]:
    return [one["error"] or one["result"] for one in run.output["outcomes"]]


def read(run: Any) -> Transcript:
    lines = [
        JournalLine(position=at, entry=decode_entry(text), mac="")
        for at, text in enumerate(run.journal, 1)
    ]
    return build_transcript(fold(Remaining(run=UUID(run.run), lines=tuple(lines))))


def most_at_once(run: Any) -> int:
    opened, most = 0, 0
    for event in run.events:
        opened += isinstance(event, FrameOpened) and event.parent is not None
        opened -= isinstance(event, FrameClosed) and event.frame != "0"
        most = max(most, opened)
    return most


def test_outcomes_are_in_the_order_of_the_items_and_at_most_two_work_at_once() -> None:
    run = drive(each, bills(*(f"say {n}" for n in "abcdd"), "say a"))
    assert results(run) == ["a", "b", "c", "d", "d", "a"]
    assert [one["item"] for one in run.output["outcomes"]] == [1, 2, 3, 4, 5, 6]
    assert most_at_once(run) == 2
    asked = sum(isinstance(event, FrameOpened) for event in run.events)
    assert asked == 1 + 4, "equal items are worked on once"


class Free(BaseModel):
    given: Any


@script
def saying(turn: Turn) -> Reply:
    given = turn.input["given"]
    if isinstance(given, int):
        return say(str(given))
    raise ValueError(f"{given} {'€' * 2_000}")


free = agent(name="free", description="Says.", instructions="Say.", input=Free, model=saying)


def test_items_that_python_takes_for_equal_are_two() -> None:
    items = [{"given": given} for given in (1, True, 1, False)]
    assert results(drive(for_each(free), {"items": items})) == ["1", "True", "1", "False"]


def test_long_errors_of_all_items_fit_together() -> None:
    items = [{"given": str(number)} for number in range(180)]
    run = drive(for_each(free, max_items=180, at_once=20), {"items": items})
    assert run.status == "completed"
    assert all(one["error"] for one in run.output["outcomes"])
    assert measure_size(run.output) < MAX_REPLY


def test_the_next_item_starts_when_one_has_its_outcome() -> None:
    run = drive(each, bills("A-1", "say b", "broken", "A-2", "say c", "A-3"))
    assert [gate.sentence for gate in run.gates] == ["Pay A-1", "Pay A-2"]
    run.deny("Not this one.", run.gates[1])
    assert [gate.sentence for gate in run.gates] == ["Pay A-1", "Pay A-3"], "c has ended"
    run.approve(run.gates[1]).approve()
    assert results(run)[0] == "A-1 is paid", "the first item ended last"
    assert most_at_once(run) == 2
    begun = [event.input for event in run.events if isinstance(event, FrameOpened) and event.call]
    assert [one["number"] for one in begun] == ["A-1", "say b", "broken", "A-2", "say c", "A-3"]


def test_the_longest_list_is_one_reply() -> None:
    numbers = [str(number) for number in range(MAX_ITEMS)]
    many = for_each(payer, max_items=MAX_ITEMS, at_once=20)
    run = drive(many, bills(*(f"say {number}" for number in numbers)))
    assert (results(run), most_at_once(run)) == (numbers, 20)
    replies = [event for event in run.events if isinstance(event, ModelReplied)]
    assert [len(event.calls) for event in replies if event.frame == ROOT] == [MAX_ITEMS, 0]


def test_a_reply_that_a_person_gives_in_a_fork_has_the_same_limit() -> None:
    given = tuple(Proposal(tool="payer", args={"number": number}) for number in "abc")
    assert convert_person_reply(each, GivenReply(by="eve", calls=given)).at_once == 2


def test_an_item_that_fails_or_is_denied_loses_no_other() -> None:
    run = drive(each, bills("A-1", "broken", "A-2", "say fine"))
    assert run.gates[0].path == ("each_payer", "payer", "pay")
    run.approve(run.gates[0])
    run.deny("Paid last week.")
    paid, broken, denied, fine = results(run)
    assert (paid, denied, fine) == ("A-1 is paid", "not paid: Paid last week.", "fine")
    assert "this model fails" in broken


def test_denials_and_refused_calls_end_their_item_and_not_the_run() -> None:
    numbers = ["A-1", "A-2", "A-3", "A-4"]
    run = drive(each, bills(*numbers))
    while run.gates:
        run.deny("Not this one.", run.gates[0])
    assert results(run) == ["not paid: Not this one."] * 4


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ([call("pay", number=f"B-{n}") for n in range(9)], "pay was denied in 3 turns"),
        (
            [call("nothing", number=n) for n in range(9)],
            "5 calls of this item that could not be made",
        ),
    ],
)
def test_an_item_that_does_not_learn_ends_and_loses_no_other(
    wanted: list[Reply], said: str
) -> None:
    def stubborn(turn: Turn) -> Reply:
        if turn.input["number"] == "fine":
            return say("fine")
        return wanted[len(turn.results)]

    run = drive(each, bills("A-1", "fine", "A-2"), models={"payer": script(stubborn)})
    while run.gates:
        run.deny("No.", run.gates[0])
    first, fine, second = results(run)
    assert (fine, said in first, said in second) == ("fine", True, True)
    told = read(run)
    assert told.is_of_item("0.c1.0")
    assert not told.is_of_item("0")
    assert told.list_denied_turns("pay") == frozenset()


def test_a_crash_repeats_no_item() -> None:
    PAID.clear()
    run = drive(each, bills("A-1", "A-2", "A-3"), crash_after=["pay"])
    assert [gate.sentence for gate in run.gates] == ["Pay A-1", "Pay A-2"]
    run.approve(run.gates[1]).approve(run.gates[0]).approve()
    assert results(run) == ["A-1 is paid", "A-2 is paid", "A-3 is paid"]
    assert PAID == ["A-2", "A-2", "A-1", "A-3"], "the other side knows the key of the lost call"
    assert len({one.key for one in run.calls}) == 3


def test_its_model_is_the_one_by_which_pages_know_it() -> None:
    assert each.definition["model"] == EACH


def test_its_code_decides_also_where_the_installation_has_models(settings: Settings) -> None:
    settings.SIGNOFF_MODEL = "openai:gpt-5"
    assert providers.is_scripted(each)
    assert not providers.is_scripted(payer)


@pytest.mark.parametrize("text", [f"{REPORTED}no JSON", f"{EDITED}no JSON", "\x01" * 5_000])
def test_any_text_of_an_item_is_only_its_result(text: str) -> None:
    run = drive(each, bills(f"say {text}", *(f"say {n}" for n in range(49))))
    found = run.output["outcomes"][0]
    assert text.startswith(found["result"])
    assert found["cut"] == (found["result"] != text)
    assert results(run)[1:] == [str(n) for n in range(49)]
    assert measure_size(run.output) < MAX_RESULTS < MAX_REPLY


@pytest.mark.parametrize("items", [[], [{"number": ""}], [{"number": "1"}] * 101])
def test_wrong_items_are_refused_before_any_work(items: list[Any]) -> None:
    root = agent(name="root", description="Has bills paid.", instructions="Pay.", input=Bill,
                 subagents=[each])  # fmt: skip
    run = drive(root, {"number": "1"}, model=[call("each_payer", items=items), say("done")])
    assert run.output == "done"
    assert sum(isinstance(event, FrameOpened) for event in run.events) == 1
    assert any("refused: arguments.items" in line for line in run.transcript)


def test_its_limits_are_stated() -> None:
    limits: list[tuple[str, Any]] = [("max_items", 0), ("max_items", 201), ("at_once", 0)]
    for name, number in (*limits, ("at_once", 21), ("at_once", 1.5)):
        with pytest.raises(DefinitionError, match=f"for_each payer: {name} must be"):
            for_each(payer, **{name: number})
