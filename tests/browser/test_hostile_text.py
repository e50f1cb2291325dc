"""Hostile strings in every place that shows agents' text are shown as text. FAULTS_R8 says how many."""

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle, islice
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import pytest
from playwright.sync_api import Request, expect

from agents.models import PublishedAgent
from approvals.decisions import teamwork
from approvals.decisions.teamwork import inquire
from approvals.rules.policy import Group
from runtime.core.run.continuation import MAX_REFUSALS
from runtime.core.values.limits import MAX_INQUIRY, MAX_REASON, MAX_TOOL
from runtime.models import Run
from runtime.ports.agents import CallInfo
from runtime.ports.effects import ToolFailure, ToolResult
from tests.browser.conftest import Desk
from tests.support.fake_ports import FakeTool, Script, ask, say, turns
from tests.support.office import BEA, NEWCOMER, Office, OfficeEffects
from tests.support.seeds import TOOL, object_of, person, published
from tests.system.fault_injection.harness.counts import LONG, count
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


# One run shows SEVERAL strings in each of eight places, FEW in each of four, and one in each of ten. Each batch is
# turned by one string, so that a place gets strings of every kind.
SEVERAL, FEW = 35 if LONG else 10, MAX_REFUSALS - 1
SIZE = 8 * SEVERAL + 4 * FEW + 10
STRINGS = strings(-(-count("R8", short=200, long=5_000) // SIZE) * SIZE)


def batches() -> Iterator[list[str]]:
    for turned, at in enumerate(range(0, len(STRINGS), SIZE)):
        batch = STRINGS[at : at + SIZE]
        yield batch[turned % SIZE :] + batch[: turned % SIZE]


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
    person("dora", Group.REVIEWERS)
    office.effects.__class__ = HostileEffects
    return office


@pytest.fixture
def quick(desk: Desk) -> Desk:
    """A window that keeps scripts and styles in its cache, which it has only without routes, and opens no stream."""
    desk.page.context.unroute_all()
    desk.page.add_init_script("window.EventSource = class extends EventTarget { close() {} }")
    return desk


class Dealt:
    """The strings of a batch, each to one place."""

    def __init__(self, batch: list[str]) -> None:
        self._left = iter(batch)

    def one(self, most: int | None = None) -> str:
        return next(self._left)[:most]

    def some(self, number: int = SEVERAL) -> list[str]:
        return list(islice(self._left, number))


def _run(office: Office, dealt: Dealt) -> UUID:
    """A run that has strings in each place, and waits for a person."""
    one, some = dealt.one, dealt.some
    names = [f"{number} {name}" for number, name in enumerate(some())]
    args = {"a": one(), **dict(zip(names, some(), strict=True))}
    office.effects.steps = tuple(some())
    failing = FakeTool(body=lambda request: ToolFailure(error=request.args["error"]))
    returning = FakeTool(body=lambda request: ToolResult(value=request.args["result"]))
    office.effects.tools |= {"failing": failing, "returning": returning}
    results = zip(some(), some(), some(), strict=True)
    done = [
        *(("failing", {"error": text}) for text in some()),
        *(("returning", {"result": {key: [text, {"deep": deep}]}}) for key, text, deep in results),
    ]
    unknown = [
        (tool[:MAX_TOOL], {"x": text}) for tool, text in zip(some(FEW), some(FEW), strict=True)
    ]
    work = turns(
        replace(ask(*unknown), text=one()),
        replace(ask(*done), text=one()),
        replace(ask(("set_privileges", args)), text=one()),
        say(one()),
    )
    begun, ended, answers = one(), say(one()), iter(some(FEW))
    agents: dict[str, Script] = office.effects.agents
    agents["hr_onboarding"] = turns(replace(ask(("account_agent", NEWCOMER)), text=begun), ended)
    agents["account_agent"] = lambda request: (
        work(request) if request.inquiry is None else say(next(answers))
    )
    run = office.start(key=one(100).replace("\n", " "))
    assert Run.objects.get(pk=run).status == "suspended", Run.objects.get(pk=run).reason
    return run


def _talk(office: Office, run: UUID, dealt: Dealt) -> None:
    """What people write beside the request, and the agent's answers."""
    approval_id = office.request(run).id
    for text in dealt.some():
        teamwork.add_comment(approval_id=approval_id, text=text[: teamwork.MAX_COMMENT], actor=BEA)
    note = dealt.one(teamwork.MAX_NOTE)
    teamwork.hand_over(approval_id=approval_id, to="dora", note=note, actor=BEA)
    for text in dealt.some(FEW):
        inquire(approval_id=approval_id, question=text[:MAX_INQUIRY], actor=BEA)
    office.advance(run)


def test_no_string_is_more_than_text_on_any_page(quick: Desk, office: Office) -> None:
    desk, page, asked, dialogs = quick, quick.page, [], []

    def note(request: Request) -> None:
        asked.append(urlsplit(request.url).path)

    page.on("request", note)
    page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    for batch in batches():
        desk.log_in("admin")
        PublishedAgent.objects.all().delete()
        _publish(batch)
        dealt = Dealt(batch)
        run = _run(office, dealt)
        _talk(office, run, dealt)
        shown = _visit(desk, office, run, dealt.one(MAX_REASON))
        assert (dialogs, desk.complaints, desk.strays) == ([], [], [])
        assert [path for path in asked if not OURS.fullmatch(path)] == []
        assert [text[:5] for text in batch if f"{text[:5]} " not in shown] == []
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


def _visit(desk: Desk, office: Office, run: UUID, reason: str) -> str:
    """Open all pages about the run, deny its call, and return what the pages show."""
    approval = office.request(run).id
    for path in (f"/runs/{run}/fork/2/", f"/runs/{run}/message/", "/people/", "/stops/"):
        _text(desk, path)
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
    office.deny(run, reason)
    return shown + _text(desk, f"/a/{approval}/") + _text(desk, f"/runs/{run}/?tab=transcript")


# Unfolds everything. `foreign` are elements and attributes that no template of ours writes.
_LOOK = """() => {
    for (const it of document.querySelectorAll('details')) { it.removeAttribute('name'); it.open = true; }
    const fields = [...document.querySelectorAll('input,textarea')];
    const foreign = [...document.querySelectorAll(
        'script:not([src]), style, iframe, object, embed, base, img:not([src^="/static/"]), math, template,'
        + 'meta[http-equiv], [hx-get]:not(#q, form.search, .choices select, .wf .n a, .inspect a),'
        + '[data-hx-post], [hx-vals], [hx-swap-oob], [sse-connect], [style],'
        + 'a[href^="javascript:"], a[href*="elsewhere"]'
    )].concat([...document.querySelectorAll('*')].filter(
        (it) => [...it.attributes].some(({ name }) => name.startsWith('on'))
    ));
    return {
        width: document.documentElement.scrollWidth,
        pwned: window.pwned ?? null,
        foreign: foreign.map((it) => it.outerHTML.slice(0, 120)),
        text: document.body.innerText + fields.map((it) => it.value).join(''),
    };
}"""
NARROW, WIDE = 320, 1280


def _text(desk: Desk, path: str) -> str:
    """Return the visible text of a page with everything unfolded, after a look at it on a phone and on a screen."""
    page, shown = desk.page, ""
    desk.open(path)
    size = page.viewport_size
    assert size is not None
    for width in (size["width"], NARROW + WIDE - size["width"]):
        page.set_viewport_size({"width": width, "height": 800})
        found = page.evaluate(_LOOK)
        assert (found["width"] <= width, found["pwned"], found["foreign"]) == (True, None, []), path
        shown = found["text"] if width == WIDE else shown
    return shown


def _publish(batch: list[str]) -> None:
    words = iter(batch)

    def text() -> dict[str, str]:
        return dict(zip(("title", "description", "default"), words, strict=False))

    inputs = {name: {"type": "string", **text()} for name in islice(words, SEVERAL)}
    choice = {"type": "string", "enum": list(islice(words, SEVERAL))}
    tools = [
        {
            **TOOL,
            "description": next(words),
            "schema": object_of(**{next(words): {"type": "string", "description": next(words)}}),
            "sentence": next(words),
            "secret_args": [next(words)],
        }
        for _ in range(5)
    ]
    published(
        description=next(words),
        input_schema={"type": "object", "properties": {**inputs, "choice": choice}},
        tools=tools,
        subagents=list(islice(words, SEVERAL)),
        steps=list(islice(words, SEVERAL)),
    )
