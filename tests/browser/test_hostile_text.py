"""Hostile strings in every place that shows agents' text are shown as text. FAULTS_R8 says how many."""

import re
from collections.abc import Iterable
from dataclasses import replace
from itertools import cycle, islice
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import pytest
from playwright.sync_api import Page, Request, expect

from agents.models import PublishedAgent
from runtime.models import Run
from runtime.ports.agents import CallInfo
from runtime.ports.effects import ToolFailure, ToolResult
from tests.browser.conftest import Desk, unfold
from tests.support.fake_ports import FakeTool, ask, say, turns
from tests.support.office import Office, OfficeEffects
from tests.support.seeds import TOOL, object_of, published
from tests.system.fault_injection.harness.counts import count
from tests.system.fault_injection.harness.figures import say as report

pytestmark = pytest.mark.browser

ELSEWHERE = "https://elsewhere.example"

_RUN = "window.pwned=1"

_SCRIPTS = (
    f"<script>{_RUN}</script>",
    f"<img src=x onerror={_RUN}>",
    f'"><img src=x onerror="{_RUN}">',
    f"<details open ontoggle={_RUN}>",
    f"<input autofocus onfocus={_RUN}>",
    "<iframe srcdoc='<script>parent.pwned=1</script>'></iframe>",
    f"<a href='javascript:{_RUN}'>click</a>",
    "<object data='data:text/html,<script>parent.pwned=1</script>'></object>",
    f"<base href='{ELSEWHERE}/'>",
    f"<meta http-equiv=refresh content='0;url={ELSEWHERE}'>",
    f"<link rel=stylesheet href='{ELSEWHERE}/x.css'>",
    f"<style>body{{background:url({ELSEWHERE}/x.png)}}</style>",
    f"<math><mtext></mtext><style><img src=x onerror={_RUN}></style></math>",
    f"--><script>{_RUN}</script><!--",
    "{{ request.user.password }}{% load static %}{% debug %}",
    "${7*7}#{7*7}<%= 7*7 %>",
    f"&lt;script&gt;{_RUN}&lt;/script&gt;",
    "<form action=/logout/ method=post><button>Approve</button></form>",
    "</textarea></title></noscript></template><h1>Approved by security</h1>",
)
_HTMX = (
    "<div hx-get='/logout/' hx-trigger='load'>",
    f"<div hx-get='{ELSEWHERE}' hx-trigger='load'>",
    "<div data-hx-post='/logout/' data-hx-trigger='load'>",
    f"<div hx-on:load='{_RUN}' hx-on::after-swap='{_RUN}'>",
    f"<div hx-vals='js:{{a:{_RUN}}}' hx-get='/' hx-trigger='revealed'>",
    "<div data-live='inbox' data-src='/logout/?'>",
    "<div hx-swap-oob='true' id='main'>gone</div>",
    f"<div hx-ext='sse' sse-connect='{ELSEWHERE}'>",
)
_MARKDOWN = (
    f"![]({ELSEWHERE}/pixel.png?secret)",
    f"[Approve]({ELSEWHERE})",
    f"[x]: {ELSEWHERE} 'y'\n[Approve][x]",
    "# Approved by security\n---\n**Nothing to check.**",
    "| a | b |\n|---|---|\n| Approved | yes |",
    "```html\n<script>window.pwned=1</script>\n```",
)
_CHARACTERS = (
    "\u202egnp.eciovni\u202c",
    "\u2066isolated\u2067backwards\u2069",
    "\u200badmin\u200b\u200c\u200d\u2060",
    "\u0430dmin@ex\u0430mple.org",
    "\uff41dmin \u1d00dmin \u03b1dmin",
    "\u00adsoft\u00adhyphens\u00ad",
    "\u180e\u3164\u115f\u2800\uffa0",
    "\U000e0061\U000e0062\U000e0063",
    "a\u0300\u0301\u0302\u0303\u0304\u0305\u0306\u0307\u0308" * 5,
    "\ufeff\ufffe\uffff",
    "\u2028line\u2029paragraph\u0085next",
    "tab\tand\rreturn\x0bvertical\x0cfeed",
    "\x1b[2J\x1b[31mApproved\x1b[0m",
    "\x1b]8;;https://elsewhere.example\x07click\x1b]8;;\x07",
    "\u2801\U0001f600\U0001f469\u200d\U0001f4bb\U0001f3f3\ufe0f\u200d\U0001f308",
    "\u202b\u05d0\u05d1\u05d2 100 \u202c\u0661\u0662\u0663",
)
_LONG = (
    "x" * 4_000,
    "\n" * 300 + "and the real thing at the end",
    "<b>" * 400,
    "(" * 500 + ")" * 500,
    "https://elsewhere.example/" + "a" * 2_000,
)
_KINDS = (_SCRIPTS, _HTMX, _MARKDOWN, _CHARACTERS, _LONG)


def strings(number_of: int) -> list[str]:
    """Kind by kind in turn, each with a word of its own; what comes round again is wrapped into another kind."""
    sources = [cycle(kind) for kind in _KINDS]
    found = []
    for number, source in zip(range(number_of), cycle(sources), strict=False):
        text = next(source)
        if number >= sum(map(len, _KINDS)):
            text = next(islice(sources[number % 4], 1)) + text
        found.append(f"h{number:04} {text}")
    return found


SIZE = 20
STRINGS = strings(count("R8", short=300, long=5_000))
BATCHES = [STRINGS[at : at + SIZE] for at in range(0, len(STRINGS), SIZE)]
# Requests that a page sends by itself.
OURS = re.compile(
    r"/(static/.*|events/|healthz|login/|inbox/|runs/.*|a/[0-9a-f-]+/(here/)?|agents/.*|account/|people/|stops/)?"
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
    report(f"FIGURES hostile strings: {len(STRINGS)} on the pages, 0 more than text")


def test_the_page_of_the_api_is_strict_too(desk: Desk, suspended: UUID) -> None:
    desk.log_in("ada")
    desk.open("/api/v1/docs")
    post = desk.page.get_by_role("button", name="POST /api/v1/runs").first
    post.click()
    expect(desk.page.get_by_text("business_key").first).to_be_visible()
    assert (desk.complaints, desk.strays) == ([], [])


def test_the_policy_lets_no_inline_script_run(desk: Desk, suspended: UUID) -> None:
    answer = desk.page.goto(f"{desk.url}/login/")
    assert answer is not None
    policy = answer.headers["content-security-policy"]
    assert "script-src 'self';" in f"{policy};"
    assert "style-src 'self';" in f"{policy};"
    assert "unsafe" not in policy


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
    for path in (f"/runs/{run}/fork/2/", f"/runs/{run}/message/", "/people/", "/stops/"):
        _text(desk, path)
    # Deny with a reason that is one of them, so that a person's words go the same way.
    office.deny(run, batch[18][:2000])
    shown += _text(desk, f"/a/{approval}/") + _text(desk, f"/runs/{run}/?tab=transcript")
    page.remove_listener("request", note)
    assert dialogs == []
    assert [path for path in asked if not OURS.fullmatch(path)] == []
    assert [text[:5] for text in batch if f"{text[:5]} " not in shown] == []


def _text(desk: Desk, path: str) -> str:
    """Return the visible text of a page with everything unfolded."""
    desk.open(path)
    page = desk.page
    unfold(page)
    for width in (320, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
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
            + 'meta[http-equiv], [hx-get]:not(#q, form.search, .choices select),'
            + '[data-hx-post], [hx-vals], [hx-swap-oob], [sse-connect], [style],'
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
