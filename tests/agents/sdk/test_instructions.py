"""Instructions that a function makes of an agent's input: called once, stored, and part of its version."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel

from agents.errors import DefinitionError
from agents.sdk import Holds
from agents.testing import call, drive, say
from agents.testing.drive import Flow
from runtime.core.events import FrameOpened
from tests.support.specs import spec_of

told: list[str | None] = []
asked: list[str] = []


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


def of_nothing() -> str:
    return "Do."


async def late(case: Case) -> str:
    return "Do."


def listening(_messages: Any, info: Any) -> Any:
    told.append(info.instructions)
    return say("Done.")


def hesitant(messages: Any, info: Any) -> Any:
    told.append(info.instructions)
    return call("nothing") if len(told) == 1 else say("Done.")


def made(instructions: Any = friendly) -> Any:
    return spec_of("desk", instructions=instructions, input=Case)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    told.clear()
    asked.clear()


def test_they_are_made_once_and_written_down() -> None:
    run = drive(made(), {}, model=listening)
    assert (told, asked) == (["Answer in English."], ["English"])
    (opened,) = [event for event in run.events if isinstance(event, FrameOpened)]
    assert (opened.instructions, run.instructions) == (told[0], told[0])
    assert opened.prompt != made().prompt


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (failing, "their function failing failed: LookupError: English"),
        (empty, "their function empty must return a text of 1 to"),
        (no_text, "contains half of a surrogate pair"),
    ],
)
def test_a_function_that_fails_ends_the_run_before_its_model(
    function: Callable[[Case], str], why: str
) -> None:
    run = drive(made(function), {}, model=listening)
    assert (run.status, told) == ("failed", [])
    assert f"desk does not take its input: instructions: {why}" in str(run.reason)


def held(instructions: Any) -> Flow:
    """A run that stops before its second reply, on a release with these instructions."""
    first = replace(made(), holds=Holds(every=1))
    run = drive(first, {"language": "French"}, model=hesitant)
    run.deploy(replace(made(instructions), holds=Holds(every=1)))
    return run.go_on()


def test_a_changed_function_is_a_version_that_needs_approval() -> None:
    run = held(short)
    assert "instructions" in run.gate.sentence
    (change,) = run.gate.args["changes"]
    assert (change["before"].splitlines()[0], change["asks"]) == (
        "def friendly(case: Case) -> str:",
        True,
    )
    run.settle("continue")
    assert run.instructions == told[-1] == "Be brief,\nin French."


def test_a_version_that_cannot_read_the_input_ends_the_run() -> None:
    run = held(failing).settle("continue")
    assert run.status == "failed"
    assert "their function failing failed: LookupError: French" in str(run.reason)


@pytest.mark.parametrize("given", [lambda case: "Do.", of_nothing, late, print, Case, 7])
def test_instructions_must_be_a_plain_function_of_the_input(given: Any) -> None:
    with pytest.raises(DefinitionError, match="agent desk: instructions are a text, or a def"):
        made(given)
