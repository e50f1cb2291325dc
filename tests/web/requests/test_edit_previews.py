"""Edit and approve of a call with a preview, on the page and in the API: its new consequences, then one decision."""

import json
import re
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from django.test import Client

from approvals.models import Approval
from runtime.core.values.enums import CallPreview
from runtime.core.values.json_values import sha256_of
from runtime.execution.jobs import edit_previews
from runtime.models import EditPreview
from runtime.ports.effects import PreviewRequest
from tests.support.api_client import Caller
from tests.support.office import Office
from tests.support.pages import has, send, shows, text, text_of

LESS = {"in.username": "newhire", "in.security_level": "1"}
ARGS = {"username": "newhire", "security_level": 1}
WORLD: dict[str, Any] = {}


def previewed(request: PreviewRequest) -> CallPreview:
    if WORLD.get("refuses"):
        return CallPreview(refused="newhire has left")
    if WORLD.get("fails"):
        return CallPreview(missing="it is <slow>")
    level = request.of.args["security_level"]
    shown = {"summary": f"from {WORLD.get('now', 0)} to {level}", "warnings": ["<for ever>"]}
    return CallPreview(shown=shown, material=sha256_of(shown))


@pytest.fixture
def asked(office: Office) -> Approval:
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
    bea: Client, office: Office, asked: Approval
) -> None:
    shows(bea, f"/a/{asked.id}/edit/", "and what the changed call would do")
    page = edited(bea, asked)
    live = f'data-live="edit" data-seconds="1" data-src="{page}"'
    shows(bea, page, live, "Working out what the changed call would do", ">Reload<", "changed to: ")
    shows(bea, page, hides=["Approve with 1 change", "Remark (kept"])
    perform(office)
    found = shows(bea, page, "from 0 to 1", "for your changes", "Approve with 1 change<")
    has(found, "&lt;for ever&gt;", hides=["data-live", "Working out", "<for ever>"])
    has(text(bea, page, live=True), "from 0 to 1", hides=["<h1>"])
    approve(bea, asked, found)
    shows(bea, asked, "Approved with changes", "from 0 to 1", "for these changes", "starting…")
    shows(bea, asked, hides=["from 0 to 3"])
    assert office.advance(asked.run_id).status == "completed"
    assert [call.args for call in office.effects.calls if call.tool == "set_privileges"] == [ARGS]
    assert Approval.objects.filter(run=asked.run_id).count() == 1
    shows(bea, "/decisions/", "Approved with changes", ">Done<")


def approve(bea: Client, approval: Approval, page: str, **form: str) -> None:
    found = re.search(r'name="preview" value="([^"]*)"', page)
    assert found is not None
    assert send(bea, approval, "edit/approve", preview=found[1], **form).status_code == 302


def test_a_call_that_is_asked_again_did_not_run_and_its_page_says_so(
    bea: Client, office: Office, asked: Approval
) -> None:
    page = edited(bea, asked)
    perform(office)
    approve(bea, asked, text(bea, page))
    WORLD["now"] = 2
    assert office.advance(asked.run_id).status == "suspended"
    again = Approval.objects.get(run=asked.run_id, status="pending")
    said = ("not run: the consequences changed. Asked again as", f'href="/a/{again.id}/"')
    found = shows(bea, asked, *said, again.sentence, hides=["starting…", "may start once"])
    has(found, "from 0 to 1", hides=["from 2 to 1"])
    shows(bea, again, "New approval needed", "from 2 to 1", "from 0 to 1")
    shows(bea, "/decisions/", "Not run, asked again")
    has(text_of(bea.get("/decisions/?outcome=asked_again")), asked.sentence)
    send(bea, again, "approve")
    assert office.advance(asked.run_id).status == "completed"
    shows(bea, asked, *said)


def test_arguments_that_the_tool_refuses_cannot_be_approved(
    bea: Client, office: Office, asked: Approval
) -> None:
    page = edited(bea, asked)
    WORLD["refuses"] = True
    perform(office)
    shows(
        bea, page, "The tool refuses these arguments", "has left", hides=["Approve with 1 change<"]
    )
    preview = str(EditPreview.objects.get().id)
    refused = send(bea, asked, "edit/approve", preview=preview)
    has(text_of(refused, 422), "arguments are refused by the tool: newhire has left")
    assert Approval.objects.get(pk=asked.pk).status == "pending"


def test_a_preview_that_failed_can_be_asked_for_again(
    bea: Client, office: Office, asked: Approval
) -> None:
    page = edited(bea, asked)
    EditPreview.objects.update(state="failed", ended_at="2026-01-01T00:00Z", problem="<no> slot.")
    found = shows(bea, page, "No preview of the changed call", "&lt;no&gt; slot.", "Preview again")
    has(found, f'action="/a/{asked.id}/edit/"', hides=["Approve with 1 change<", "data-live"])
    answer = send(bea, asked, "edit", arguments=json.dumps(ARGS))
    assert (EditPreview.objects.get().state, answer.status_code) == ("queued", 302)
    elsewhere = bea.get(page)  # another one has taken its place
    assert (elsewhere.status_code, elsewhere["Location"]) == (302, f"/a/{asked.id}/edit/")
    WORLD["fails"] = True
    perform(office)
    missing = shows(bea, answer["Location"], "No preview: it is &lt;slow&gt;", "Preview again")
    has(missing, "Approve with 1 change<")
    EditPreview.objects.update(state="done", ended_at="2026-01-01T00:00Z", result="{}")
    shows(bea, answer["Location"], "does not verify", hides=["Approve with 1 change<"])


def test_a_refused_decision_shows_the_same_page_again(
    bea: Client, office: Office, asked: Approval
) -> None:
    edited(bea, asked)
    preview = str(EditPreview.objects.get().id)
    early = send(bea, asked, "edit/approve", preview=preview, reason="mine")
    has(text_of(early, 422), "The preview has no result yet", "Working out")
    perform(office)
    stale = send(bea, asked, "edit/approve", preview=preview, digest="sha256:x", reason="mine")
    has(text_of(stale, 409), "changed while you were reading", "from 0 to 1", "mine")
    gone = send(bea, asked, "edit/approve", preview=str(UUID(int=1)))
    has(text_of(gone, 422), "preview the edit again")
    without = text_of(send(bea, asked, "edit/approve", arguments=json.dumps(ARGS)), 422)
    has(without, "preview these arguments first", "Start again", hides=["Approve with 1 change<"])


def test_an_edit_in_the_api_names_its_preview(
    bea_api: Caller, office: Office, asked: Approval
) -> None:
    place, digest = f"/approvals/{asked.id}", asked.approval_digest
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
    assert office.advance(asked.run_id).status == "completed"
    assert office.started(asked.run_id) == 1
    assert bea_api.get(f"{place}/previews/{UUID(int=1)}").status_code == 404
