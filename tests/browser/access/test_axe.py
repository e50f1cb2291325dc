"""axe-core on every page in every state, at a desk and on a phone, light and dark: no violations. See `axe`."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.test import override_settings
from playwright.sync_api import Page, expect

from agents.catalogue.published import publish
from agents.effect_handler import AgentEffects
from agents.sdk import Answer, agent, last
from agents.sdk.scripts import Reply, Turn, call, script
from agents.sdk.scripts import say as says
from approvals import clock
from approvals.governance import allowance_changes, subscriptions
from approvals.governance.subscriptions import Act as SubscriptionAct
from approvals.governance.subscriptions import SubscriptionTerms
from approvals.models import Approval, VersionDecision
from approvals.people import directories, instances, mappings, password_links, tokens
from approvals.port.adapter import ApprovalService
from approvals.rights.principals import Scope
from approvals.rules.policy import Demands, Group
from approvals.signed.rows import add
from runtime.control import jobs
from runtime.control.external_events import deliver
from runtime.control.interventions import hold
from runtime.core.values.budgets import BudgetLimits
from runtime.models import Occurrence, Run
from runtime.ports.access import Actor
from runtime.store import pool
from runtime.store.tables.jobs import REPLAYS
from runtime.store.tables.trigger_rows import TriggerKind
from runtime.triggers import changes, webhooks
from runtime.triggers import changes as trigger_changes
from runtime.upkeep import retention
from tests.browser.access.axe import FIRST, Axe
from tests.browser.conftest import Desk, unfold
from tests.support.engine import HandDriven, start_run
from tests.support.fake_ports import say, turns
from tests.support.long_runs import long_office_run
from tests.support.office import BEA, SCHEMA, Office, reseal
from tests.support.seeds import ARGS, Cast, decide, person, published
from tests.support.specs import Question, registry_of
from tests.web.aap.conftest import Desk as OutsideWorker
from tests.web.aap.conftest import Door

pytestmark = pytest.mark.browser

LISTS = (
    *(f"/inbox/{query}" for query in ("", "?view=others", "?q=risk:none")),
    *(f"/decisions/{query}" for query in ("", "?risk=none", "?person=bea")),
    *("/account/", "/account/notices/", "/runs/", "/agents/", "/tools/"),
)

Act = Callable[[Page], Any]
ADA = Actor(person="ada")


@pytest.fixture(scope="module")
def known() -> list[str]:
    """The looks of elements whose colours a test has checked."""
    return []


@pytest.fixture
def axe(desk: Desk, known: list[str]) -> Axe:
    return Axe(desk, known)


def _allowance(approval: Approval) -> UUID:
    """An allowance that Dora proposed."""
    dora = person("dora", Group.REVIEWERS)
    any_value = {name: {"rule": "any"} for name in ("username", "security_level")}
    return allowance_changes.propose(approval.id, limits=any_value, count=5, days=3, actor=dora)


def replayed(office: Office) -> UUID:
    """A run with a replay that found a step that differs."""
    run = office.start()
    replay = jobs.replay_run(run=run, actor=Actor(person="admin")).id
    said = {"text": "", "calls": [{"tool": "pay", "args": {"euros": 40}}], "output": None}
    step = {"position": 2, "path": ["hr_onboarding"], "recorded": "a", "today": "b"}
    with_words = {**step, "recorded_reply": None, "today_reply": None}
    found = {"begins": 1, "until": 4, "agents": 1, "replies": 2, "kept": 1, "calls": 1, "more": 3}
    steps = [{**step, "recorded_reply": said, "today_reply": said}, with_words]
    versions = {"hr_onboarding": ["sha256:a", "sha256:b"]}
    REPLAYS.begin(pool.use_django_connection(), replay)
    stored = {**found, "whole": True, "versions": versions, "divergences": steps}
    REPLAYS.save(pool.use_django_connection(), replay, of=[run], result=json.dumps(stored))
    REPLAYS.end(pool.use_django_connection(), replay)
    return run


def _pages(office: Office, cast: Cast) -> dict[str, list[tuple[str, Act | None]]]:
    """List who opens which address, and their actions there before axe checks the page."""
    halt = office.held()
    short = office.short(BudgetLimits(turns=1))
    undoable = office.start()
    with override_settings(SIGNOFF_UNDO_SECONDS=600):
        office.approve(undoable)
    waiting = office.start(key="a-key")
    risky = office.start()
    reseal(Approval.objects.filter(run=risky), risk="high")
    together = office.request(office.start()).id
    talk = office.request(office.start())  # with the box that writes to its run
    reseal([talk], rule=Demands(rule="Talk", reviewer_may_write=True).stored())
    done = office.start()
    office.approve(done)
    archived = office.start()
    office.approve(archived)
    assert retention.archive_run(pool.use_django_connection(), archived)
    hold(run=archived, reason="Lawsuit 7.", actor=Actor(person="admin"))
    denied = office.start()
    office.deny(denied, "Not now.")
    expired = office.start()
    reseal(Approval.objects.filter(run=expired), expires_at=datetime(2020, 1, 1, tzinfo=UTC))
    ApprovalService().expire(office.request(expired).gate)
    doubt = office.in_doubt()
    cancelled = office.cancel(office.start(), reason="A mistake.")
    question = office.question("Which level has New Hire?", SCHEMA)
    office.effects.agents["hr_onboarding"] = turns(say(""))
    parked = office.start()
    Run.objects.filter(id=parked).update(status="quarantined", reason="entry 3 is not its own")
    failed = office.start()
    Run.objects.filter(id=failed).update(status="failed", reason="the model cannot be reached")
    shortened = long_office_run(office, archives=True)
    published(input_schema=SCHEMA)
    tokens.create(cast.bea, ["runs:read"], name="reports", days=7)
    link = password_links.create("cyril", actor=None)
    admin = Actor(person="admin")
    made, _ = instances.provision(instances.InstanceFields(name="Deploy bot"), actor=admin)
    instance = made["instance"]["id"]
    terms = SubscriptionTerms(name="ERP", url="https://erp.example/", events=["run.started"])
    told = subscriptions.subscribe(terms, actor=admin).id
    subscriptions.change(told, SubscriptionAct.TEST, actor=admin)
    directories.create_token("acme", days=30, actor="admin")
    mappings.propose("directory acme", "Staff", "reviewers", actor="admin")
    said = {"name": "Hourly", "agent": "hr_onboarding", "cron": "0 * * * *", "input": ARGS}
    scheduled = trigger_changes.create(TriggerKind.SCHEDULE, sent=said, actor=Actor(person="ada"))
    changes.run_now(id=scheduled, actor=Actor(person="ada"))
    on = {"name": "Hires", "agent": "hr_onboarding", "event": "hired", "mapping": ARGS}
    trigger = trigger_changes.create(TriggerKind.EVENT, sent=on, actor=Actor(person="ada"))
    deliver(id="e-1", name="hired", data={}, actor=Actor(person="admin"))
    webhooks.make(id=trigger, scheme="github", actor=Actor(person="ada"))
    Occurrence.objects.update(state="failed", reason="input.level: is missing")
    pair = {"agent": "hr_onboarding", "before": "sha256:a", "after": "sha256:b"}
    add(VersionDecision(**pair, by="admin", reason="Fine.", count=2, at=clock.read_time()))
    ours = [waiting, done, denied, expired, doubt, cancelled]
    run, start = f"/runs/{waiting}/", "/agents/hr_onboarding/start/"
    asked = f"/a/{office.request(waiting).id}/"
    lost = f"/a/{office.in_doubt_request(doubt).id}/"
    opened = {
        "bea": [
            *(f"/inbox/{query}" for query in ("", "?q=nothing-like-it", "?q=risk:none")),
            *("/inbox/?view=others", "/decisions/", "/decisions/?person=bea", "/decisions/?risk=x"),
            *(f"/a/{office.request(run).id}/" for run in (*ours, undoable)),
            *(f"/a/{approval.id}/" for approval in (halt, short, question, talk)),
            *(f"{asked}edit/", f"{asked}allow/"),
            *("/allowances/", f"/allowances/{_allowance(office.request(waiting))}/"),
            *(
                "/batch/",
                f"/batch/?item={office.request(waiting).id}&item={office.request(risky).id}",
            ),
            lost,
            *("/runs/", "/runs/?q=nothing-like-it", f"/runs/{done}/compare/{denied}/"),
            *(f"/runs/{run}/" for run in (*ours, parked, failed, halt.run_id, short.run_id)),
            *(run + part for part in ("?tab=transcript", "cancel/", "message/")),
            *("/agents/", "/agents/hr_onboarding/", start),
            *("/account/", "/account/second/app/", "/nowhere/", f"/runs/{uuid4()}/"),
            *(f"/password/{link.plain}/", "/password/x/"),
        ],
        "ada": [
            *("/schedules/", "/schedules/new/", "/schedules/new/?agent=hr_onboarding"),
            *(f"/schedules/{scheduled}/", f"/schedules/{scheduled}/change/"),
            *("/triggers/", "/triggers/new/", "/triggers/new/?agent=hr_onboarding"),
            *(f"/triggers/{trigger}/", f"/triggers/{trigger}/change/"),
            *("/inbox/", asked, run, *(f"/runs/{done}/fork/{at}/" for at in (2, 3)), start),
        ],
        "admin": [
            *(
                "/overview/",
                "/costs/?by=agent",
                "/search/?q=a",
                "/inbox/",
                "/people/",
                "/people/?q=stranger",
                "/people/?q=garbage:xyz",
                "/people/bea/activity/",
                "/instances/",
                f"/instances/{instance}/end/",
                "/directories/",
                "/subscriptions/",
                f"/subscriptions/{told}/",
                "/manual/how-to/install/",
                "/stops/",
                "/policies/",
                "/policies/deciders/",
                "/prompts/",
                "/prompts/hr/onboarding/",
                "/prompts/hr/onboarding/0/try/",
                "/version-changes/",
            ),
            *(run, f"{run}at/1/", f"/runs/{parked}/readmit/"),
            *(f"{run}replay/", f"/runs/{replayed(office)}/replay/"),
            *(f"/runs/{archived}/", f"/runs/{archived}/restore/", f"/runs/{archived}/lift-hold/"),
            *(f"/runs/{shortened}/", f"/runs/{shortened}/removed/"),
        ],
    }
    acts: dict[str, dict[str, Act]] = {
        "bea": {
            asked: partial(_refused, button="button:has-text('Deny')"),
            lost: _report_no_json,
            f"/batch/?item={together}": _approve_together,
            f"/a/{office.request(risky).id}/": _open_second_step,
            f"/a/{halt.id}/": partial(_refused, button="button:has-text('Stop')"),
        },
        "ada": dict.fromkeys((f"{run}cancel/", f"{run}message/", start), _send),
        "admin": {
            "/people/?open=bea": _send_a_short_name,
            "/people/?open=cyril": _make_a_link,
            "/instances/": _make_an_instance,
            "/subscriptions/": _make_a_webhook,
            "/policies/": _add_a_rule,
            **dict.fromkeys((f"/runs/{parked}/readmit/", "/stops/"), _send),
        },
    }
    return {
        name: [*((path, None) for path in paths), *acts[name].items()]
        for name, paths in opened.items()
    }


def test_empty_pages_and_pages_with_data_have_no_violations(
    desk: Desk, axe: Axe, office: Office, cast: Cast, object_store: object
) -> None:
    found: dict[str, list[str]] = {}

    def visit(where: str, path: str, act: Act | None = None) -> None:
        desk.look(*FIRST)
        desk.open(path)
        unfold(desk.page)
        if act is not None:
            act(desk.page)
        found[where] = axe.violations()

    visit("login", "/login/")
    visit("login refused", "/login/", _log_in_wrongly)
    for name in ("bea", "cyril"):
        desk.log_in(name)
        for path in ("/inbox/", "/decisions/", "/runs/", "/agents/", "/account/", "/allowances/"):
            visit(f"empty {name} {path}", path)
    for name, pages in _pages(office, cast).items():
        desk.log_in(name)
        for path, act in pages:
            visit(f"{name} {path} {act}", path, act)
    assert {where: what for where, what in found.items() if what} == {}
    # A refusal and a page there is not are errors to the console.
    assert [text for text in desk.complaints if "status of 4" not in text] == []
    assert desk.strays == []


@script
def _writer(turn: Turn) -> Reply:
    if turn.result("plan") is None:
        return call("plan", write=["Read the question", "Write the answer", "Send it"])
    return says("Yours sincerely.")


WRITER = agent(
    name="writer",
    description="Writes an answer.",
    instructions="Write.",
    input=Question,
    model=_writer,
    answer=Answer(),
    plan=True,
    thread_memory=last(4),
)


def test_a_plan_a_memory_and_a_held_answer_have_no_violations(
    desk: Desk, axe: Axe, by_hand: None, cast: Cast
) -> None:
    registry = registry_of(WRITER)
    publish(registry)
    engine = HandDriven(AgentEffects(registry), ApprovalService())
    try:
        for question in ("First?", "Second?"):
            run = start_run("writer", {"text": question}, thread="letters")
            engine.advance_once(run)
            approval = Approval.objects.get(run=run)
            if question == "First?":
                decide(approval, BEA)
                engine.advance_once(run)
    finally:
        engine.close()
    assert Run.objects.filter(status="completed").count() == 1
    found: dict[str, list[str]] = {}
    for name in ("ada", "bea"):
        desk.log_in(name)
        for path in (f"/runs/{run}/", f"/runs/{run}/?tab=transcript", f"/a/{approval.id}/"):
            desk.look(*FIRST)
            desk.open(path)
            unfold(desk.page)
            found[f"{name} {path}"] = axe.violations()
    assert {where: what for where, what in found.items() if what} == {}


def test_a_request_of_an_agent_outside_has_no_violations(
    desk: Desk, axe: Axe, by_hand: None, cast: Cast
) -> None:
    worker = OutsideWorker()
    _, token = tokens.create(cast.admin, [Scope.INSTANCES_MANAGE])
    instance = Door(token).send("POST", "/instances", {"instance_name": "Bot"}, str(uuid4())).json()
    bot = Door(instance["credential"]["token"])
    try:
        waiting, used = bot.ask()["id"], bot.ask()["id"]
        worker.advance(waiting)
        worker.decide(used)
        bot.use(used)
        bot.report(used, note="Deployed.")
        requests = [worker.approval(request).id for request in (waiting, used)]
    finally:
        worker.close()
    desk.log_in("bea")
    for request in requests:
        desk.look(*FIRST)
        desk.open(f"/a/{request}/")
        expect(desk.page.get_by_text("Asked by an agent outside")).to_be_visible()
        unfold(desk.page)
        assert axe.violations() == []


def test_the_inbox_has_no_violations(desk: Desk, axe: Axe, office: Office) -> None:
    """While others are at work: with news, struck rows, and the sheet of keys."""
    page = desk.page
    desk.look(*FIRST)
    desk.log_in("bea")
    run = office.start()
    office.in_doubt()
    page.clock.install()
    desk.open("/inbox/")
    page.keyboard.press("j")
    office.approve(run)  # its mail is in doubt, too
    page.clock.run_for(4000)
    expect(page.get_by_role("button", name="1 new")).to_be_visible()
    expect(page.locator(".gone")).to_have_count(1)
    assert axe.violations() == [], "news"
    _open_the_keys(page)
    assert axe.violations() == [], "keys"


def test_text_of_twice_the_size_does_not_scroll_sideways(desk: Desk, office: Office) -> None:
    run = office.start(args={"username": "n" * 60, "security_level": 3})
    office.in_doubt()
    desk.log_in("bea")
    pages = (f"/runs/{run}/", f"/runs/{run}/?tab=transcript", f"/runs/{run}/cancel/")
    for path in (*LISTS, *pages, f"/a/{office.request(run).id}/"):
        desk.open(path)
        desk.page.evaluate("document.documentElement.style.fontSize = '200%'")
        for width in (390, 640, 1280):
            desk.page.set_viewport_size({"width": width, "height": 800})
            assert desk.page.evaluate("document.documentElement.scrollWidth") <= width, path
            if path.startswith("/a/"):
                approve = desk.page.get_by_role("button", name="Approve")
                approve.scroll_into_view_if_needed()
                expect(approve).to_be_in_viewport()


def test_the_decision_bar_leaves_focus_visible(desk: Desk, asked: str) -> None:
    desk.page.set_viewport_size({"width": 390, "height": 700})
    desk.log_in("bea")
    desk.open(asked)
    conversation = desk.page.locator("summary", has_text="Conversation")
    conversation.focus()
    bar, focused = (one.bounding_box() for one in (desk.page.locator(".decide"), conversation))
    assert bar is not None
    assert focused is not None
    assert focused["y"] + focused["height"] <= bar["y"]


# What people do, past the browser's own checks


def _log_in_wrongly(page: Page) -> None:
    page.get_by_label("Username").fill("bea")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("alert").wait_for()


def _refused(page: Page, button: str) -> None:
    """Press a button of a form that the server refuses."""
    page.evaluate("document.querySelectorAll('main form').forEach(it => it.noValidate = true)")
    page.locator(button).last.click()
    if page.locator(".decide[data-writing]").count():  # the reason is open now
        page.locator(button).last.click()
    page.get_by_role("alert").first.wait_for()


def _send(page: Page) -> None:
    page.evaluate("document.querySelectorAll('main form').forEach(it => it.noValidate = true)")
    with page.expect_navigation():
        page.locator("main form[method=post] button:not([type=button])").last.click()


def _approve_together(page: Page) -> None:
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_role("heading", name="Approved: 1 of 1")).to_be_visible()


def _open_second_step(page: Page) -> None:
    page.get_by_role("button", name="Approve…").click()
    page.locator(".second").wait_for()


def _report_no_json(page: Page) -> None:
    page.locator("textarea[name=result]").fill("no json")
    _refused(page, "form[action*=happened] button")


def _open_the_keys(page: Page) -> None:
    page.keyboard.press("?")
    page.get_by_role("dialog").wait_for()


def _add_a_rule(page: Page) -> None:
    page.click("text=Add a rule")
    page.wait_for_url("**/policies/draft/*")
    unfold(page)


def _make_a_link(page: Page) -> None:
    page.get_by_role("button", name="Make a password link for cyril").click()
    expect(page.get_by_role("heading", name="shown this once")).to_be_visible()


def _make_an_instance(page: Page) -> None:
    unfold(page)
    page.locator("#new-name").fill("Bot")
    page.get_by_role("button", name="Create instance").click()
    expect(page.get_by_role("heading", name="shown this once")).to_be_visible()


def _make_a_webhook(page: Page) -> None:
    unfold(page)
    page.locator("#new-name").fill("Bot")
    page.locator("#new-url").fill("https://bot.example/")
    page.get_by_label("run.failed").check()
    page.get_by_role("button", name="Create webhook").click()
    expect(page.get_by_role("heading", name="shown this once")).to_be_visible()


def _send_a_short_name(page: Page) -> None:
    page.evaluate("document.querySelectorAll('main form').forEach(it => it.noValidate = true)")
    with page.expect_navigation():
        page.locator("form[action='/people/add/'] button").click()
    unfold(page)
