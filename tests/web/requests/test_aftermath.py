"""The page after a decision names the real state: paused, about to start, failed, in doubt, done."""

import re
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from django.test import Client
from pytest_django import Settings

from approvals.models import Request
from runtime.control.kill_switches import engage
from runtime.control.pause import pause
from runtime.ports.access import Actor
from runtime.ports.effects import ToolFailure, ToolResult, Unknown
from tests.support.fake_ports import FakeTool
from tests.support.office import Office
from tests.support.pages import has, send, text


def _text(client: Client, request: Request) -> str:
    return " ".join(text(client, request).split())


def _box(client: Client, request: Request) -> str:
    """The box of the verdict, with its class."""
    box = r'<div class="note[^>]*role="status">(?:(?!</section>).)*?<div class="split">'
    found = re.search(box, _text(client, request))
    assert found
    return found[0]


def _stop(run: UUID) -> None:
    engage(agent="", reason="because", actor=None)


@pytest.mark.parametrize(
    ("hinder", "takes_effect", "status"),
    [
        (lambda run: None, "A worker starts it next.", "a worker starts it next"),
        (
            _stop,
            "It takes effect when every agent is resumed.",
            "starts when every agent is resumed",
        ),
        (
            lambda run: pause(run=run, reason="", actor=Actor(person="ada")),
            "It takes effect when the run is resumed.",
            "starts when the run is resumed",
        ),
    ],
)
def test_the_page_says_when_an_approved_call_starts(
    bea: Client, asked: Request, hinder: Callable[[UUID], Any], takes_effect: str, status: str
) -> None:
    hinder(asked.run_id)
    send(bea, asked, "approve", reason="Her lead agreed.")
    page = has(_text(bea, asked), f"Approved. {takes_effect}", f"Status: approved, {status}")
    has(page, "The call may start once")
    has(_box(bea, asked), "Her lead agreed.", hides=["waiting for a person"])


def test_while_it_can_be_undone_nothing_is_said_to_start(
    bea: Client, asked: Request, settings: Settings
) -> None:
    settings.ABEYANCE_UNDO_SECONDS = 600
    send(bea, asked, "approve")
    page = has(_text(bea, asked), "approved, takes effect in")
    assert re.search(r"Approved\. It takes effect in \d+ min; until then you can undo it\.", page)
    _stop(asked.run_id)
    has(_box(bea, asked), "then waits until every agent is resumed")


def test_page_and_list_show_the_outcome_of_each_call(bea: Client, office: Office) -> None:
    said_of: dict[str, ToolFailure | Unknown] = {
        "a": ToolFailure(error="no such <person>"),
        "b": Unknown(error="cut off"),
    }
    office.effects.tools["set_privileges"] = FakeTool(
        gated=True, body=lambda asked: said_of.get(asked.args["username"], ToolResult(value="set"))
    )
    boxes = []
    for name in ("a", "b", "c", "d"):
        run = office.start(args={"username": name, "security_level": 1})
        request = office.request(run)
        send(bea, request, "approve")
        if name != "c":
            office.advance(run)
            boxes.append(_box(bea, request))
            has(_text(bea, request), hides=["The call may start once"])
    failed, lost, done = boxes
    has(failed, 'class="note danger"', "Status: failed", "no such &lt;person&gt;")
    doubt = Request.objects.get(kind="in_doubt")
    has(lost, 'class="note warn"', f'href="/a/{doubt.id}/"')
    has(done, 'class="note ok"', "Status: done", ">Result<")
    rows = text(bea, "/inbox/?view=decided").split('<li class="row"')[1:]
    said = [re.findall(r'class="badge ?(\w*)">(?:<svg.*?</svg>)?([A-Z][^<]*)', row) for row in rows]
    assert said == [
        [("", "Approved"), ("ok", "Done")],
        [("ok", "Approved")],
        [("", "Approved"), ("warn", "In doubt")],
        [("", "Approved"), ("danger", "Failed")],
    ]
    assert "set" in rows[0]
    assert "cut off" in rows[2]
    assert "no such &lt;person&gt;" in rows[3]
