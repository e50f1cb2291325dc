"""Edit and approve on the page: the form of every kind of value, the differences, the decision, and its refusals."""

import html
import json
import re
from types import SimpleNamespace
from typing import Any

import pytest
from django.template.loader import render_to_string
from django.test import Client
from django.utils.html import strip_tags

from approvals.models import Approval
from approvals.requests.argument_changes import changes
from runtime.keyring import sealing
from runtime.models import Signal
from runtime.web import schema_form
from tests.support import seeds
from tests.support.fake_ports import ask, say, turns
from tests.support.office import Office
from tests.support.pages import has, send, shows, text_of

LESS = {"in.username": "newhire", "in.security_level": "1"}


def test_edit_and_approve(bea: Client, ada: Client, office: Office, asked: Approval) -> None:
    shows(bea, asked, f'href="/a/{asked.id}/edit/"')
    shows(ada, asked, hides=["/edit/"])
    page = shows(bea, f"/a/{asked.id}/edit/", 'name="in.security_level"', 'value="newhire"')
    assert "Nothing is decided yet" in page
    review = text_of(send(bea, asked, "edit", reason="Enough.", **LESS))
    has(review, "Approve with 1 change<", "Enough.", "changed to: ")
    assert not Signal.objects.exists()
    other = office.request(office.start())
    decided = send(bea, asked, "edit/approve", reason="Enough.", arguments=_sent(review))
    assert decided.url == f"/a/{other.id}/"
    has(shows(bea, other), "security_level 1 instead of 3")  # the message
    asked.refresh_from_db()
    assert (asked.status, json.loads(asked.edited or "")["security_level"]) == ("approved", 1)
    assert office.advance(asked.run_id).status == "completed"
    heard = office.effects.models[-3].messages[-1]["results"][0]
    assert (heard["edited_by"], heard["args"]["security_level"]) == ("bea", 1)
    [made] = [call for call in office.effects.calls if call.tool == "set_privileges"]
    assert made.args == {"username": "newhire", "security_level": 1}
    page = shows(bea, asked, "Approved with changes by <bdi>bea</bdi>", "changed 1 argument:")
    has(page, "The agent had proposed:", ", with <bdi>security_level 1 instead of 3</bdi></h1>")
    shows(bea, "/decisions/", "Approved with changes")
    shows(ada, asked.run_id, "approved with changes by <bdi>bea</bdi>")


def test_a_wrong_form_names_its_fields_and_keeps_everything(bea: Client, asked: Approval) -> None:
    wrong = {"in.username": "", "in.security_level": "one", "reason": "my own words"}
    page = text_of(send(bea, asked, "edit", **wrong), 422)
    has(page, 'value="one"', "my own words", "must be a whole number", 'aria-invalid="true"')
    same = {"in.username": "newhire", "in.security_level": "3"}
    has(text_of(send(bea, asked, "edit", **same), 422), "are unchanged: approve the call as it is")
    for sent in ("[1,", '{"username": "newhire", "security_level": "1"}', '{"tool": "x"}'):
        page = text_of(send(bea, asked, "edit/approve", arguments=sent, reason="kept"), 422)
        has(page, "Not decided", "kept")
    stale = send(bea, asked, "edit", digest="sha256:other", **LESS)
    has(text_of(stale, 409), "the request changed while you were reading")
    assert seeds.untouched(asked)


ARGS = {"username": "newhire", "security_level": 1}


def test_a_secret_is_not_shown_and_stays(bea: Client, office: Office) -> None:
    sealed = sealing.seal("swordfish", sealing.encode_location("set_privileges", "args", "note"))
    args = {"username": "newhire", "security_level": 3, "note": sealed}
    office.effects.agents["account_agent"] = turns(ask(("set_privileges", args)), say("Done."))
    approval = office.request(office.start())
    page = shows(bea, f"/a/{approval.id}/edit/", "secret, unchanged", hides=["swordfish"])
    assert 'name="in.note"' not in page
    review = text_of(send(bea, approval, "edit", **LESS))
    send(bea, approval, "edit/approve", arguments=_sent(review))
    assert json.loads(Signal.objects.get().body)["edit"]["args"]["note"] == sealed


def test_a_repeated_call_is_linked_to_its_edit(bea: Client, office: Office) -> None:
    args = {"username": "newhire", "security_level": 3}
    again = ask(("set_privileges", args))
    office.effects.agents["account_agent"] = turns(again, again, say("Done."))
    run = office.start()
    first = office.request(run)
    send(bea, first, "edit/approve", arguments=json.dumps(ARGS))
    office.advance(run)
    second = Approval.objects.get(run=run, status="pending")
    shows(bea, second, "Asks again for what <bdi>bea</bdi> changed", f'href="/a/{first.id}/"')


def _sent(page: str) -> str:
    found = re.search(r'name="arguments" value="([^"]*)"', page)
    assert found is not None
    return html.unescape(found[1])


# The form of every kind of value

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "to": {"type": "string"},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "level": {"enum": ["low", "high"]},
        "euros": {"type": "number"},
        "count": {"type": ["integer", "null"]},
        "urgent": {"type": "boolean"},
        "due": {"type": "string", "format": "date-time"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "place": {"$ref": "#/$defs/Place"},
        "extra": {"type": "array", "items": {"type": "object"}},
    },
    "required": ["to", "euros"],
    "$defs": {
        "Place": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "zip": {"type": "integer"}},
        }
    },
}
GIVEN: dict[str, Any] = {
    "to": " ada\r\n",
    "note": None,
    "level": "low",
    "euros": 40.0,
    "count": 2,
    "urgent": False,
    "due": "2030-01-05T09:00:00.123456Z",
    "tags": ["a", ""],
    "place": {"city": "Ulm"},
    "extra": [{"deep": [1, None]}],
}


def posted(args: dict[str, Any]) -> dict[str, str]:
    """The fields of the form as a browser sends them."""

    def walk(fields: Any) -> dict[str, str]:
        found = dict[str, str]()
        for one in fields:
            found |= walk(one.inside) if one.inside else {one.id: one.raw}
            found |= {one.zone_id: one.zone} if one.kind == "moment" else {}
        return {name: value.replace("\n", "\r\n") for name, value in found.items()}

    return walk(schema_form.fields(SCHEMA, args))


def test_an_input_fits_its_value() -> None:
    schema = seeds.object_of(
        order={"type": "string"}, letter={"type": "string"}, parts={"type": "object"}
    )
    args = {"order": "A-1004", "letter": "Dear Ada,\n" * 30, "parts": {"a": {"b": [1]}}}
    page = "".join(
        render_to_string("approvals/_edit_field.html", {"field": field})
        for field in schema_form.fields(schema, args)
    )
    rows = dict(re.findall(r'<textarea id="in\.(\w+)".*? class="grows" rows="(\d)"', page))
    assert rows == {"order": "1", "letter": "4", "parts": "4"}
    has(html.unescape(page), json.dumps(args["parts"], indent=2))


def test_a_form_that_was_not_touched_changes_nothing() -> None:
    for args in (GIVEN, {"to": "x", "euros": 1}, {**GIVEN, "tags": [], "place": {}, "due": None}):
        made, wrong = schema_form.read(schema_form.fields(SCHEMA, args), posted(args))
        assert (json.dumps(made, sort_keys=True), wrong) == (json.dumps(args, sort_keys=True), {})


@pytest.mark.parametrize(
    ("typed", "changed"),
    [
        ({"in.to": "bea "}, {"to": "bea "}),
        ({"in.note": "now"}, {"note": "now"}),
        ({"in.level": '"high"'}, {"level": "high"}),
        ({"in.euros": "1e2"}, {"euros": 100.0}),
        ({"in.count": ""}, {"count": None}),
        ({"in.urgent": "true"}, {"urgent": True}),
        (
            {"in.due": "2030-07-05T10:30", "zone.due": "Europe/Berlin"},
            {"due": "2030-07-05T10:30:00+02:00"},
        ),
        ({"zone.due": "+01:00"}, {"due": "2030-01-05T09:00:00+01:00"}),
        ({"in.tags.1": "b", "in.tags.3": "c"}, {"tags": ["a", "b", "c"]}),
        ({"in.tags.0": ""}, {"tags": [""]}),
        ({"in.place.zip": "89073"}, {"place": {"city": "Ulm", "zip": 89073}}),
        ({"in.extra": "[]"}, {"extra": []}),
    ],
    ids=range(12),
)
def test_a_typed_value_is_read_by_its_kind(typed: dict[str, str], changed: dict[str, Any]) -> None:
    given = {**GIVEN, "due": "2030-01-05T09:00:00Z"}
    made, wrong = schema_form.read(schema_form.fields(SCHEMA, given), posted(given) | typed)
    assert (made, wrong) == ({**given, **changed}, {})


@pytest.mark.parametrize(
    ("field", "text"),
    [("euros", "forty"), ("count", "1.5"), ("extra", "[1,"), ("due", "soon"), ("place.zip", "x")],
)
def test_an_unreadable_value_is_named(field: str, text: str) -> None:
    given = {**GIVEN, "due": "2030-01-05T09:00:00Z"}
    fields = schema_form.fields(SCHEMA, given)
    typed = posted(given) | {f"in.{field}": text}
    _, wrong = schema_form.read(fields, typed)
    assert list(wrong) == [field]
    shown, other = schema_form.fill_in(fields, typed, wrong | {"gone": "is not expected"})
    assert other == ["gone is not expected"]
    assert text in repr(shown)


def test_changes_stand_in_one_row_with_titles_and_units() -> None:
    letter = "".join(f"Line {n} says something about the refund.\n" for n in range(1, 9))
    schema = {
        "properties": {
            "sum": {"title": "Sum to <b>pay</b>", "type": "number", "unit": "euros"},
            "to": {"title": "To", "properties": {"city": {"title": "Town"}}},
            "body": {"title": "Body", "type": "string"},
        }
    }
    before = {"sum": 0, "to": {"city": "A"}, "body": letter, "tags": ["a", "b"], "old": "x\u202e"}
    after = {
        "sum": 12500.5,
        "to": {"city": "B"},
        "body": letter.replace("Line 4", "Row 4"),
        "tags": ["b"],
    }
    context = {"changes": changes(before, after), "of": SimpleNamespace(args=before, schema=schema)}
    page = render_to_string("approvals/_edit_changes.html", context)
    spoken = re.sub(r'<span class="vh">.*?</span>', "", page)
    words = re.sub(r"\s+", " ", html.unescape(strip_tags(spoken)))
    has(
        words,
        "Sum to <b>pay</b> sum 0 → 12500.50 euros",
        "To › Town to.city A → B",
        "Body 1 line removed, 1 line added",
        "−Line 4 says something about the refund.+Row 4 says something about the refund.",
        "tags removed a",
        "old x⟦U+202E⟧ → not given",
    )
