"""Three hundred hostile strings in every place that shows agents' text are shown as text."""

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import pytest
from playwright.sync_api import Page, Request

from agents.models import PublishedAgent
from runtime.models import Run
from runtime.ports.agents import CallInfo
from runtime.ports.effects import ToolFailure, ToolResult
from tests.browser.conftest import Desk, unfold
from tests.browser.hostile import strings
from tests.support.fake_ports import FakeTool, ask, say, turns
from tests.support.office import Office, OfficeEffects
from tests.support.published import TOOL, object_of, published

pytestmark = pytest.mark.browser

SIZE = 20
BATCHES = [strings()[at : at + SIZE] for at in range(0, 300, SIZE)]
# Requests that a page sends by itself.
OURS = re.compile(
    r"/(static/.*|events/|healthz|login/|inbox/|runs/.*|a/[0-9a-f-]+/|agents/.*|account/)?"
)


class HostileEffects(OfficeEffects):
    """Effects whose sentence is the agent's first argument."""

    def describe(self, *, agent: str, tool: str, args: Any) -> CallInfo:
        facts = super().describe(agent=agent, tool=tool, args=args)
        return replace(facts, sentence=args["a"]) if tool == "set_privileges" else facts


@pytest.fixture
def office(office: Office) -> Office:
    office.effects.__class__ = HostileEffects
    return office


def _run(office: Office, batch: list[str]) -> UUID:
    """A run that has every string of the batch somewhere, and waits for a person."""
    words = iter(batch)
    args = {"a": next(words), **{f"{n} {next(words)}": next(words) for n in range(3)}}
    office.effects.steps = (next(words), next(words))
    failing = FakeTool(body=lambda request: ToolFailure(error=request.args["error"]))
    returning = FakeTool(body=lambda request: ToolResult(value=request.args["result"]))
    office.effects.tools |= {"failing": failing, "returning": returning}
    result = {next(words): [next(words), {"deep": next(words)}]}
    office.effects.agents["account_agent"] = turns(
        replace(ask((next(words), {"x": next(words)})), text=next(words)),  # a tool there is not
        ask(("failing", {"error": next(words)}), ("returning", {"result": result})),
        replace(ask(("set_privileges", args)), text=next(words)),
        say(next(words)),
    )
    run = office.start(key=batch[-1][:100].replace("\n", " "))
    assert Run.objects.get(pk=run).status == "suspended"
    return run


def test_no_string_is_more_than_text_on_any_page(desk: Desk, office: Office) -> None:
    for batch in BATCHES:
        PublishedAgent.objects.all().delete()
        _publish(batch)
        run = _run(office, batch)
        _visit(desk, office, run, batch)
    assert (desk.complaints, desk.strays) == ([], [])


def _visit(desk: Desk, office: Office, run: UUID, batch: list[str]) -> None:
    page, asked, dialogs = desk.page, [], []

    def note(request: Request) -> None:
        asked.append(urlsplit(request.url).path)

    page.on("request", note)
    page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    desk.log_in("admin")
    approval = office.request(run).id
    shown = "".join(
        _text(desk, path)
        for path in (
            "/inbox/?view=others",
            f"/a/{approval}/",
            "/runs/",
            f"/runs/{run}/",
            f"/runs/{run}/?tab=transcript",
            f"/runs/{run}/at/{Run.objects.get(pk=run).position}/",
            f"/runs/{run}/cancel/",
            "/agents/",
            "/agents/hr_onboarding/",
            "/agents/hr_onboarding/start/",
        )
    )
    # Deny with a reason that is one of them, so that a person's words go the same way.
    office.deny(run, batch[18][:2000])
    shown += _text(desk, f"/a/{approval}/") + _text(desk, f"/runs/{run}/?tab=transcript")
    page.remove_listener("request", note)
    assert dialogs == []
    assert [path for path in asked if not OURS.fullmatch(path)] == []
    assert [text[:4] for text in batch if f"{text[:4]} " not in shown] == []


def _text(desk: Desk, path: str) -> str:
    """Return the visible text of a page with everything unfolded."""
    desk.open(path)
    page = desk.page
    unfold(page)
    assert page.evaluate("window.pwned") is None, path
    assert _foreign(page) == [], path
    text: str = page.evaluate("document.body.innerText")
    values: Iterable[str] = page.evaluate(
        "[...document.querySelectorAll('input,textarea')].map(it => it.value)"
    )
    return text + "".join(values)


def _foreign(page: Page) -> list[str]:
    """Elements and attributes that no template of ours writes."""
    found: list[str] = page.evaluate(
        """() => [...document.querySelectorAll(
            'script:not([src]), style, iframe, object, embed, base, img:not([src^="/static/"]), math, template,'
            + 'meta[http-equiv], [hx-get]:not(#q), [data-hx-post], [hx-vals], [hx-swap-oob], [sse-connect], [style],'
            + 'a[href^="javascript:"], a[href*="elsewhere"]'
        )].concat([...document.querySelectorAll('*')].filter(
            (it) => [...it.attributes].some(({ name }) => name.startsWith('on'))
        )).map((it) => it.outerHTML.slice(0, 120))"""
    )
    return found


def _publish(batch: list[str]) -> None:
    texts = {"type": "string", "title": batch[7], "description": batch[8], "default": batch[9]}
    argument = {"type": "string", "description": batch[3]}
    choice = {"type": "string", "enum": [batch[10], batch[11]]}
    tool = {"description": batch[1], "schema": object_of(**{batch[2]: argument})}
    published(
        description=batch[0],
        input_schema={"type": "object", "properties": {batch[6]: texts, "choice": choice}},
        tools=[{**TOOL, **tool, "sentence": batch[4], "secret_args": [batch[5]]}],
        subagents=[batch[12]],
        steps=[batch[13]],
    )
