"""Edit and approve on the page: the form of every kind of value, the differences, the decision, and its refusals."""

import html
import json
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from django.template.loader import render_to_string
from django.test import Client
from django.utils.html import strip_tags

from approvals.models import Approval
from approvals.requests.argument_changes import list_changes
from runtime.core.values.enums import CallPreview
from runtime.core.values.json_values import hash_value
from runtime.execution.jobs import edit_previews
from runtime.keyring import sealing
from runtime.models import EditPreview, Signal
from runtime.ports.effects import PreviewRequest
from runtime.web import schema_form
from tests.support import seeds
from tests.support.api_client import Caller
from tests.support.fake_ports import ask, say, turns
from tests.support.office import Office
from tests.support.pages import has, send, shows, text, text_of

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

    return walk(schema_form.build_fields(SCHEMA, args))


def test_an_input_fits_its_value() -> None:
    schema = seeds.object_of(
        order={"type": "string"}, letter={"type": "string"}, parts={"type": "object"}
    )
    args = {"order": "A-1004", "letter": "Dear Ada,\n" * 30, "parts": {"a": {"b": [1]}}}
    page = "".join(
        render_to_string("approvals/_edit_field.html", {"field": field})
        for field in schema_form.build_fields(schema, args)
    )
    rows = dict(re.findall(r'<textarea id="in\.(\w+)".*? class="grows" rows="(\d)"', page))
    assert rows == {"order": "1", "letter": "4", "parts": "4"}
    has(html.unescape(page), json.dumps(args["parts"], indent=2))


def test_a_form_that_was_not_touched_changes_nothing() -> None:
    for args in (GIVEN, {"to": "x", "euros": 1}, {**GIVEN, "tags": [], "place": {}, "due": None}):
        made, wrong = schema_form.read(schema_form.build_fields(SCHEMA, args), posted(args))
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
    made, wrong = schema_form.read(schema_form.build_fields(SCHEMA, given), posted(given) | typed)
    assert (made, wrong) == ({**given, **changed}, {})


@pytest.mark.parametrize(
    ("field", "text"),
    [("euros", "forty"), ("count", "1.5"), ("extra", "[1,"), ("due", "soon"), ("place.zip", "x")],
)
def test_an_unreadable_value_is_named(field: str, text: str) -> None:
    given = {**GIVEN, "due": "2030-01-05T09:00:00Z"}
    fields = schema_form.build_fields(SCHEMA, given)
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
    context = {
        "changes": list_changes(before, after),
        "of": SimpleNamespace(args=before, schema=schema),
    }
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


# Previews


WORLD: dict[str, Any] = {}


def previewed(request: PreviewRequest) -> CallPreview:
    if WORLD.get("refuses"):
        return CallPreview(refused="newhire has left")
    if WORLD.get("fails"):
        return CallPreview(missing="it is <slow>")
    level = request.of.args["security_level"]
    shown = {"summary": f"from {WORLD.get('now', 0)} to {level}", "warnings": ["<for ever>"]}
    return CallPreview(shown=shown, material=hash_value(shown))


@pytest.fixture
def asked_with_preview(office: Office) -> Approval:
    WORLD.clear()
    tool = office.effects.tools["set_privileges"]
    office.effects.tools["set_privileges"] = replace(tool, preview=previewed)
    return office.request(office.start())


def perform(office: Office) -> None:
    context = office.context
    preview = EditPreview.objects.get().id
    edit_previews.perform(preview, handler=context.handler, effect_pool=context.effect_pool)


def edited(bea: Client, approval: Approval, place: str = "") -> str:
    """Send the form, and return the address of the page of its preview."""
    answer = send(bea, approval, f"edit{place}", **LESS)
    assert answer.status_code == 302
    return str(answer["Location"])


def test_the_new_consequences_are_shown_and_approved_once(
    bea: Client, office: Office, asked_with_preview: Approval
) -> None:
    shows(bea, f"/a/{asked_with_preview.id}/edit/", "and what the changed call would do")
    page = edited(bea, asked_with_preview)
    live = f'data-live="edit" data-seconds="1" data-src="{page}"'
    shows(bea, page, live, "Working out what the changed call would do", ">Reload<", "changed to: ")
    shows(bea, page, hides=["Approve with 1 change", "Remark (kept"])
    perform(office)
    found = shows(bea, page, "from 0 to 1", "for your changes", "Approve with 1 change<")
    has(found, "&lt;for ever&gt;", hides=["data-live", "Working out", "<for ever>"])
    has(text(bea, page, live=True), "from 0 to 1", hides=["<h1>"])
    approve(bea, asked_with_preview, found)
    shows(
        bea,
        asked_with_preview,
        "Approved with changes",
        "from 0 to 1",
        "for these changes",
        "starting…",
    )
    shows(bea, asked_with_preview, hides=["from 0 to 3"])
    assert office.advance(asked_with_preview.run_id).status == "completed"
    assert [call.args for call in office.effects.calls if call.tool == "set_privileges"] == [ARGS]
    assert Approval.objects.filter(run=asked_with_preview.run_id).count() == 1
    shows(bea, "/decisions/", "Approved with changes", ">Done<")


def approve(bea: Client, approval: Approval, page: str, **form: str) -> None:
    found = re.search(r'name="preview" value="([^"]*)"', page)
    assert found is not None
    assert send(bea, approval, "edit/approve", preview=found[1], **form).status_code == 302


def test_a_call_that_is_asked_again_did_not_run_and_its_page_says_so(
    bea: Client, office: Office, asked_with_preview: Approval
) -> None:
    page = edited(bea, asked_with_preview)
    perform(office)
    approve(bea, asked_with_preview, text(bea, page))
    WORLD["now"] = 2
    assert office.advance(asked_with_preview.run_id).status == "suspended"
    again = Approval.objects.get(run=asked_with_preview.run_id, status="pending")
    said = ("not run: the consequences changed. Asked again as", f'href="/a/{again.id}/"')
    found = shows(
        bea, asked_with_preview, *said, again.sentence, hides=["starting…", "may start once"]
    )
    has(found, "from 0 to 1", hides=["from 2 to 1"])
    shows(bea, again, "New approval needed", "from 2 to 1", "from 0 to 1")
    shows(bea, "/decisions/", "Not run, asked again")
    has(text_of(bea.get("/decisions/?outcome=asked_again")), asked_with_preview.sentence)
    send(bea, again, "approve")
    assert office.advance(asked_with_preview.run_id).status == "completed"
    shows(bea, asked_with_preview, *said)


def test_arguments_that_the_tool_refuses_cannot_be_approved(
    bea: Client, office: Office, asked_with_preview: Approval
) -> None:
    page = edited(bea, asked_with_preview)
    WORLD["refuses"] = True
    perform(office)
    shows(
        bea, page, "The tool refuses these arguments", "has left", hides=["Approve with 1 change<"]
    )
    preview = str(EditPreview.objects.get().id)
    refused = send(bea, asked_with_preview, "edit/approve", preview=preview)
    has(text_of(refused, 422), "arguments are refused by the tool: newhire has left")
    assert Approval.objects.get(pk=asked_with_preview.pk).status == "pending"


def test_a_preview_that_failed_can_be_asked_for_again(
    bea: Client, office: Office, asked_with_preview: Approval
) -> None:
    page = edited(bea, asked_with_preview)
    EditPreview.objects.update(state="failed", ended_at="2026-01-01T00:00Z", problem="<no> slot.")
    found = shows(bea, page, "No preview of the changed call", "&lt;no&gt; slot.", "Preview again")
    has(
        found,
        f'action="/a/{asked_with_preview.id}/edit/"',
        hides=["Approve with 1 change<", "data-live"],
    )
    answer = send(bea, asked_with_preview, "edit", arguments=json.dumps(ARGS))
    assert (EditPreview.objects.get().state, answer.status_code) == ("queued", 302)
    elsewhere = bea.get(page)  # another one has taken its place
    assert (elsewhere.status_code, elsewhere["Location"]) == (
        302,
        f"/a/{asked_with_preview.id}/edit/",
    )
    WORLD["fails"] = True
    perform(office)
    missing = shows(bea, answer["Location"], "No preview: it is &lt;slow&gt;", "Preview again")
    has(missing, "Approve with 1 change<")
    EditPreview.objects.update(state="done", ended_at="2026-01-01T00:00Z", result="{}")
    shows(bea, answer["Location"], "does not verify", hides=["Approve with 1 change<"])


def test_a_refused_decision_shows_the_same_page_again(
    bea: Client, office: Office, asked_with_preview: Approval
) -> None:
    edited(bea, asked_with_preview)
    preview = str(EditPreview.objects.get().id)
    early = send(bea, asked_with_preview, "edit/approve", preview=preview, reason="mine")
    has(text_of(early, 422), "The preview has no result yet", "Working out")
    perform(office)
    stale = send(
        bea, asked_with_preview, "edit/approve", preview=preview, digest="sha256:x", reason="mine"
    )
    has(text_of(stale, 409), "changed while you were reading", "from 0 to 1", "mine")
    gone = send(bea, asked_with_preview, "edit/approve", preview=str(UUID(int=1)))
    has(text_of(gone, 422), "preview the edit again")
    without = text_of(
        send(bea, asked_with_preview, "edit/approve", arguments=json.dumps(ARGS)), 422
    )
    has(without, "preview these arguments first", "Start again", hides=["Approve with 1 change<"])


def test_an_edit_in_the_api_names_its_preview(
    bea_api: Caller, office: Office, asked_with_preview: Approval
) -> None:
    place, digest = f"/approvals/{asked_with_preview.id}", asked_with_preview.approval_digest
    edit = {"verdict": "edit", "digest": digest}
    refused = bea_api.post(f"{place}/decision", {**edit, "arguments": ARGS})
    assert (refused.status_code, refused.json()["field"]) == (422, "preview")
    sent = bea_api.post(f"{place}/previews", {"digest": digest, "arguments": ARGS})
    assert (sent.status_code, sent.json()["state"], sent.json()["shown"]) == (202, "queued", None)
    preview = sent.json()["id"]
    early = bea_api.post(f"{place}/decision", {**edit, "preview": preview})
    assert (early.status_code, early.json()["detail"]) == (422, "has no result yet")
    perform(office)
    found = bea_api.get(f"{place}/previews/{preview}").json()
    assert (found["state"], found["shown"]["summary"]) == ("done", "from 0 to 1")
    assert (found["missing"], found["refused"], found["problem"]) == ("", "", "")
    decided = bea_api.post(f"{place}/decision", {**edit, "preview": preview}).json()
    assert (decided["edited"], decided["edited_preview"]["shown"]) == (ARGS, found["shown"])
    assert office.advance(asked_with_preview.run_id).status == "completed"
    assert office.started(asked_with_preview.run_id) == 1
    assert bea_api.get(f"{place}/previews/{UUID(int=1)}").status_code == 404
