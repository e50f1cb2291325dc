"""Inputs that may start an agent: errors name the field and the limit, never the value."""

import json
from datetime import datetime
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, TypeAdapter, ValidationError, model_validator
from pydantic_ai.messages import ModelResponse

from agents.registry import Registry
from agents.sdk import inputs
from agents.sdk.scripts import Turn, call, say, script
from agents.testing import drive
from agents.tools.person_fields import EmailAddress, FullName, Username
from runtime.errors import InvalidInput
from tests.support.specs import NEWCOMER, spec_of


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


@script
def plan_trip(turn: Turn) -> ModelResponse:
    return say(json.dumps(turn.input, sort_keys=True))


trips = spec_of("trips", input=Trip, model=plan_trip)
office = spec_of("office", input=Trip, model=plan_trip, subagents=[trips])
JANUARY = {"begins": "2030-01-01T00:00:00+00:00", "ends": "2030-01-02T00:00:00Z"}


@pytest.fixture
def schema(hr: Registry) -> dict[str, Any]:
    return hr.get("hr_onboarding").input_schema


@pytest.mark.parametrize("level", [1, 5])
def test_good_input_passes(schema: dict[str, Any], level: int) -> None:
    inputs.check(schema, {**NEWCOMER, "full_name": "Ñew O’Hire-李", "security_level": level})


@pytest.mark.parametrize(
    ("change", "field", "detail"),
    [
        ({"security_level": 100}, "input.security_level", "must be at most 99"),
        ({"security_level": -1}, "input.security_level", "must be at least 0"),
        ({"security_level": "3"}, "input.security_level", "must be of type integer"),
        ({"security_level": 3.0}, "input.security_level", "must be of type integer"),
        ({"security_level": True}, "input.security_level", "must be of type integer"),
        ({"email": "newhire"}, "input.email", "must be a valid email"),
        ({"email": "new.hire@example.com\n"}, "input.email", "must be a valid email"),
        ({"email": "n@" + "a." * 150 + "a"}, "input.email", "at most 254 characters"),
        ({"username": "new hire"}, "input.username", "must match"),
        ({"username": "n" * 129}, "input.username", "must have at most 128 characters"),
        ({"full_name": ""}, "input.full_name", "must have at least 1 characters"),
        ({"full_name": "New\r\nBcc: all@example.com"}, "input.full_name", "must match"),
        ({"full_name": "n" * 201}, "input.full_name", "must have at most 200 characters"),
        ({"admin": True}, "input.admin", "is not expected"),
        ({"full_name": float("nan")}, "input.full_name", "not a finite number"),
        ({"full_name": "\x00"}, "input.full_name", "NUL"),
        ({"full_name": "\ud800"}, "input.full_name", "surrogate"),
        ({"full_name": "x" * 70_000}, "input", "at most 65536"),
    ],
)
def test_the_field_and_the_limit_are_named(
    schema: dict[str, Any], change: dict[str, Any], field: str, detail: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        inputs.check(schema, {**NEWCOMER, **change})
    assert caught.value.field == field
    assert detail in caught.value.detail


@pytest.mark.parametrize(
    ("value", "field", "detail"),
    [
        ({**NEWCOMER, "email": ...}, "input.email", "is missing"),
        *((value, "input", "") for value in (None, "text", 3)),
        ([], "input", ""),
    ],
)
def test_a_missing_field_is_named(
    schema: dict[str, Any], value: Any, field: str, detail: str
) -> None:
    if isinstance(value, dict):
        value = {name: given for name, given in value.items() if given is not ...}
    with pytest.raises(InvalidInput) as caught:
        inputs.check(schema, value)
    assert caught.value.field == field
    assert detail in caught.value.detail


def test_input_nested_without_end_is_refused(schema: dict[str, Any]) -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InvalidInput, match="nested deeper than 64"):
        inputs.check(schema, {**NEWCOMER, "full_name": deep})


@given(
    kind=st.sampled_from(
        [(FullName, "full_name"), (EmailAddress, "email"), (Username, "username")]
    ),
    text=st.text(max_size=20) | st.from_regex(r"\A[a-z0-9.@+\n-]{1,12}\n?\Z"),
)
def test_web_and_tool_accept_the_same_texts(kind: tuple[Any, str], text: str) -> None:
    adapter: TypeAdapter[str] = TypeAdapter(kind[0])
    try:
        adapter.validate_python(text)
        allowed = "\x00" not in text
    except ValidationError:
        allowed = False
    try:
        inputs.check({"properties": {kind[1]: adapter.json_schema()}}, {kind[1]: text})
        assert allowed
    except InvalidInput:
        assert not allowed


def test_the_agent_gets_the_input_as_its_model_returns_it() -> None:
    run = drive(trips, {**JANUARY, "people": [" Ada "]})
    assert json.loads(run.output or "") == {
        "place": "Bern",
        "begins": "2030-01-01T00:00:00Z",
        "ends": "2030-01-02T00:00:00Z",
        "people": ["Ada"],
    }


def test_input_that_the_model_refuses_ends_the_run() -> None:
    run = drive(trips, {"begins": "soon", "ends": "later"})
    assert run.status == "failed"
    assert run.reason is not None
    assert run.reason.startswith("trips does not take its input: input.begins: Input should be")
    assert "; input.ends: Input should be" in run.reason
    backwards = drive(trips, {"begins": JANUARY["ends"], "ends": JANUARY["begins"]})
    assert "input: Value error, it ends before it begins" in str(backwards.reason)


def test_a_validator_that_breaks_ends_the_run_too() -> None:
    class Broken(BaseModel):
        name: Annotated[str, AfterValidator(lambda name: {}[name])]

    run = drive(spec_of("desk", input=Broken, model=plan_trip), {"name": "x"})
    why = "desk does not take its input: input: its model Broken failed: KeyError: 'x'"
    assert (run.status, run.reason) == ("failed", why)


def test_a_sub_agent_that_refuses_its_input_is_told_to_the_model() -> None:
    wrong = {"begins": JANUARY["ends"], "ends": JANUARY["begins"]}
    run = drive(office, JANUARY, model=[call("trips", **wrong), say("Then not.")])
    assert run.output == "Then not."
    assert "arguments: Value error, it ends before it begins" in str(run)


def test_everything_that_is_wrong_is_said_at_once(schema: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as caught:
        inputs.check(schema, {"username": "x y", "security_level": 100})
    assert {one.field for one in (caught.value, *caught.value.others)} == {
        "input.full_name",
        "input.email",
        "input.username",
        "input.security_level",
    }
