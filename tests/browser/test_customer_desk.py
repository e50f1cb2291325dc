"""An agent in daily work on one installation: a model server that it asks over HTTP, a bank behind OAuth, and people.

The tests are one story: each finds the runs of the one before.
"""

import base64
import hashlib
import hmac
import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from agents.sdk.spec import AgentSpec
from tests.browser.conftest import logged_in
from tests.support.commands import Done, manage
from tests.support.oauth_server import SECRET, TokenServer, token_server
from tests.support.people import Office, until
from tests.support.provider.faults import Fault
from tests.support.provider.protocol import instructions_of
from tests.support.provider.server import KEY, Provider
from tests.support.scripted_agents import customer_desk as agents
from tests.support.specs import registry_of
from tests.support.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.e2e]

CHIEF = """from approvals.accounts.people import create_person
from approvals.policy import Group
create_person(username="chief", password="a second admin", groups=[Group.ADMINS])
"""
PASSWORDS = {"chief": "a second admin"}
ANSWER = "Give the answer to the requester"


class Model(Provider):
    """The model server of both agents, one of which has any version of its prompt."""

    def agent_of(self, instructions: str) -> AgentSpec:
        return super().agent_of(instructions) or agents.customer_desk


@dataclass(frozen=True, kw_only=True)
class Desk:
    """The installation, its bank and model, and a browser window of each person."""

    chromium: Browser
    office: Office
    bank: TokenServer
    model: Model
    refresh: Path
    runs: list[str] = field(default_factory=list)
    pages: dict[str, Page] = field(default_factory=dict)

    def page(self, name: str) -> Page:
        if name not in self.pages:
            self.pages[name] = logged_in(
                self.chromium, self.office.stack, name, PASSWORDS.get(name, "")
            )
        return self.pages[name]

    def post(self, path: str, body: bytes, **headers: str) -> httpx2.Response:
        headers = {"Content-Type": "application/json", **headers}
        return httpx2.post(self.office.stack.url + path, content=body, headers=headers)

    def open_run(self, name: str, run: str) -> Page:
        page = self.page(name)
        page.goto(f"/runs/{run}/")
        return page

    def open_request(self, run: str, sentence: str) -> Page:
        """Bea's window with the request of the run, once there is one with this sentence."""
        path = f"/api/v1/approvals?status=pending&run={run}"

        def asked() -> str | None:
            _, found = self.office.stack.ask("bea", "GET", path)
            ids = [str(one["id"]) for one in found["items"] if sentence in one["sentence"]]
            return next(iter(ids), None)

        bea = self.page("bea")
        bea.goto(f"/a/{until(asked, sentence)}/")
        return bea

    def approve(self, run: str, sentence: str) -> None:
        bea = self.open_request(run, sentence)
        bea.get_by_role("button", name="Approve").click()
        expect(bea.locator(".toast")).to_be_visible()

    def finish(self, run: str, sentence: str) -> None:
        self.approve(run, sentence)
        self.approve(run, ANSWER)
        self.office.wait(run, "completed")

    def command(self, *words: object, **more: str) -> Done:
        """Run a command as a worker would."""
        return manage(*words, env=self.office.stack.named("config.worker")[0].environ() | more)


@pytest.fixture(scope="module")
def desk(sandbox: Path, chromium: Browser) -> Iterator[Desk]:
    refresh = sandbox / "refresh"
    refresh.write_text("canary-refresh-1")
    refresh.chmod(0o644)  # workers may run under another account
    with token_server() as bank, Model(registry_of(agents.stocktake)) as model:
        given = {
            "ABEYANCE_AGENTS": agents.__name__,
            "ABEYANCE_MODEL": "openai:desk-1",
            "OPENAI_BASE_URL": model.url,
            "OPENAI_API_KEY": KEY,
            "ABEYANCE_ARCHIVE": "30",
            "ABEYANCE_HISTORY_DAYS": "0",
            agents.BANK_URL: bank.url,
            agents.BANK_SECRET: SECRET,
            agents.BANK_REFRESH: str(refresh),
        }
        with Stack(sandbox / "desk", **given) as stack:
            yield Desk(
                chromium=chromium, office=Office(stack), bank=bank, model=model, refresh=refresh
            )


def appears(page: Page, found: Locator) -> Locator:
    """Reload the page until it is there."""

    def reloaded() -> bool | None:
        page.reload()
        return found.first.is_visible() or None

    until(reloaded, str(found))
    return found


def run_of(page: Page) -> str:
    return urlsplit(page.url).path.split("/")[2]


def test_an_event_starts_a_run_whose_plan_its_reviewer_sees(desk: Desk) -> None:
    ada, bea = desk.page("ada"), desk.page("bea")
    ada.goto("/triggers/")
    ada.get_by_role("link", name="New trigger…").first.click()
    ada.get_by_label("Which agent").select_option("customer_desk")
    ada.get_by_role("button", name="Continue").click()
    ada.get_by_label("Name", exact=True).fill("Returned orders")
    ada.get_by_label("Event", exact=True).fill("order.returned")
    ada.get_by_label("Filter").fill("data.country == 'DE'")
    mapping = {"customer": "{{data.customer}}", "order": "{{data.order}}"}
    ada.get_by_label("Input of each run").fill(json.dumps(mapping))
    ada.get_by_label("Business key").fill("'return ' + data.order")
    ada.get_by_label("Thread").fill("data.customer")
    returned = {"customer": "C-7", "order": "A-1", "country": "DE"}
    trials: tuple[tuple[dict[str, object], str | re.Pattern[str]], ...] = (
        ({"country": "FR"}, "The filter does not hold"),
        ({"customer": 7}, re.compile("Data of the event.*does not fit", re.DOTALL)),
        ({}, "business key return A-1"),
    )
    for change, said in trials:
        ada.get_by_label("Sample event to try").fill(json.dumps({**returned, **change}))
        ada.get_by_role("button", name="Try").click()
        trial = ada.get_by_role("status", name="Trial of 1 event")
        expect(trial).to_contain_text(said)
    expect(trial).to_contain_text("starts a run")
    ada.get_by_role("button", name="Make the trigger").click()
    expect(ada.get_by_text("No event has come yet.")).to_be_visible()

    token = desk.office.stack.credentials["users"]["admin"]["token"]
    event = {"ce-specversion": "1.0", "ce-id": "r-1", "ce-source": "/shop"}
    sent = {**event, "ce-type": "order.returned", "Authorization": f"Bearer {token}"}
    for status in (201, 200):  # the second one is the same event
        answer = desk.post("/api/v1/events", json.dumps(returned).encode(), **sent)
        assert answer.status_code == status, answer.text
    appears(ada, ada.get_by_role("link", name="r-1")).click()
    desk.runs.append(run_of(ada))
    expect(ada.get_by_role("heading", name="customer_desk · return A-1")).to_be_visible()

    bea.goto("/")
    appears(bea, bea.get_by_role("link", name="Pay 40 euros back for order A-1")).click()
    item = bea.get_by_role("region", name="Item of the plan")
    expect(item).to_contain_text("item 2 of 3")
    expect(item).to_contain_text("Pay the money back")
    plan = appears(ada, ada.get_by_role("region", name="Plan of customer_desk"))
    expect(plan).to_contain_text("1 of 3 done")
    expect(plan.get_by_role("listitem").nth(1)).to_contain_text("At work: Pay the money back")


def test_a_credential_lapses_and_the_answer_is_held(desk: Desk) -> None:
    (run,) = desk.runs
    desk.bank.withdraw()  # while the call waits for a person
    desk.approve(run, "Pay 40 euros")
    bea = desk.open_request(run, "bank")
    why = "The credential bank has expired or was withdrawn"
    expect(bea.get_by_text(why).first).to_be_visible()
    expect(bea.get_by_text(f"replace {desk.refresh}").first).to_be_visible()
    expect(desk.open_run("ada", run).get_by_text(why).first).to_be_visible()
    desk.bank.withdraw("canary-refresh-2")
    desk.refresh.write_text("canary-refresh-2")
    bea.get_by_role("button", name="Continue").click()
    expect(bea.locator(".toast")).to_be_visible()

    bea = desk.open_request(run, ANSWER)
    said = "40 euros for order A-1 are on their way."
    expect(bea.get_by_text(said).first).to_be_visible()
    ada = desk.open_run("ada", run)
    expect(ada.get_by_role("heading", name=ANSWER)).to_be_visible()
    expect(ada.get_by_role("region", name="Plan of customer_desk")).to_contain_text("2 of 3 done")
    for tab in ("timeline", "transcript"):
        ada.goto(f"/runs/{run}/?tab={tab}")
        assert said not in ada.content()
    bea.get_by_role("button", name="Approve").click()
    desk.office.wait(run, "completed")
    expect(desk.open_run("ada", run).get_by_text(said).first).to_be_visible()


def test_a_signed_webhook_starts_a_run_that_remembers_the_thread(desk: Desk) -> None:
    ada = desk.page("ada")
    ada.goto("/triggers/")
    ada.get_by_role("link", name="Returned orders").click()
    ada.locator("summary", has_text="Make a webhook…").click()
    ada.get_by_role("button", name="Make the webhook").click()
    address, secret = ada.locator("code.mono").all_inner_texts()[:2]
    returned = {"customer": "C-7", "order": "A-2", "country": "DE"}
    body, now = json.dumps(returned).encode(), str(int(time.time()))
    key = base64.b64decode(secret.removeprefix("whsec_"))
    digest = hmac.digest(key, b".".join((b"w-1", now.encode(), body)), hashlib.sha256)
    sent = {"webhook-id": "w-1", "webhook-timestamp": now}
    path = urlsplit(address).path
    for signature, status in ((b"none", 401), (digest, 202), (digest, 200)):
        sent["webhook-signature"] = f"v1,{base64.b64encode(signature).decode()}"
        assert desk.post(path, body, **sent).status_code == status
    ada.goto("/triggers/")
    ada.get_by_role("link", name="Returned orders").click()
    expect(ada.get_by_text("1 delivery was refused")).to_be_visible()
    appears(ada, ada.get_by_role("link", name="w-1")).click()
    run = run_of(ada)
    desk.runs.append(run)
    memory = ada.get_by_role("region", name="Remembers")
    before = "40 euros for order A-1 are on their way."
    expect(memory).to_contain_text(before)
    href = memory.get_by_role("link").last.get_attribute("href")
    assert href == f"/runs/{desk.runs[0]}/"
    desk.finish(run, "Pay 90 euros back for order A-2")
    ada.reload()
    expect(ada.get_by_text(f"Last time I wrote: {before}").first).to_be_visible()


def test_a_prompt_of_two_admins_is_pinned_by_a_scheduled_run(desk: Desk) -> None:
    desk.office.execute(CHIEF)
    admin, chief = desk.page("admin"), desk.page("chief")
    text = "You look after the order {order}. Pay it back, and say so kindly."
    admin.goto("/prompts/")
    admin.get_by_role("link", name=agents.PROMPT).click()
    admin.get_by_label("Text", exact=True).fill(text)
    admin.get_by_label("What changes, and why").fill("Kinder.")
    admin.get_by_role("button", name="Save as a new version").click()
    admin.get_by_role("link", name=re.compile("Try on recorded runs.*version 1")).click()
    admin.get_by_role("button", name="Try on recorded runs").click()
    appears(admin, admin.get_by_text("10 replies, of which 0 differ"))
    expect(admin.get_by_role("region", name=f"Run {desk.runs[0]}")).to_contain_text("pay_back")
    admin.get_by_role("link", name=f"← {agents.PROMPT}").click()
    admin.get_by_role("button", name=re.compile("Propose for production.*version 1")).click()
    chief.goto("/prompts/")
    chief.get_by_role("link", name=agents.PROMPT).click()
    chief.get_by_role("button", name="Confirm version 1").click()
    expect(chief.get_by_role("heading", name="In production: version 1")).to_be_visible()

    ada = desk.page("ada")
    ada.goto("/schedules/")
    ada.get_by_role("link", name="New schedule…").first.click()
    ada.get_by_label("Which agent").select_option("customer_desk")
    ada.get_by_role("button", name="Continue").click()
    ada.get_by_label("Name", exact=True).fill("Monday returns")
    ada.get_by_label("Cron expression").fill("0 9 * * MON")
    ada.get_by_label("customer").fill("C-9")
    ada.get_by_label("order").fill("A-3")
    ada.get_by_role("button", name="Make the schedule").click()
    expect(ada.get_by_role("region", name="Next times").get_by_role("listitem")).to_have_count(5)
    ada.get_by_role("button", name="Run now").click()
    history = ada.get_by_role("region", name="History")
    expect(history).to_contain_text("started by hand by ada")
    history.get_by_role("link").first.click()
    run = run_of(ada)
    desk.runs.append(run)
    desk.finish(run, "Pay 15 euros back for order A-3")
    ada.reload()
    expect(ada.get_by_text("shop/desk, version 1")).to_be_visible()
    expect(ada.get_by_role("link", name="Monday returns")).to_be_visible()
    wordings = {instructions_of(body) for body in desk.model.bodies[-4:]}
    assert wordings == {text.replace("{order}", "A-3")}


def test_two_runs_are_compared_one_replayed_and_one_forked(desk: Desk) -> None:
    first, second, _ = desk.runs
    ada = desk.page("ada")
    ada.goto("/runs/")
    for run in (first, second):
        ada.locator(f"input[value='{run}']").check()
    ada.get_by_role("button", name="Compare two selected runs").click()
    expect(ada.get_by_role("heading", name="Two runs side by side")).to_be_visible()
    call = ada.get_by_role("region", name="Differences").get_by_role("listitem")
    paid = call.filter(has=ada.get_by_text("pay_back", exact=True))
    expect(paid).to_contain_text(
        re.compile(r"First: arguments.*40.*Second: arguments.*90", re.DOTALL)
    )

    other = desk.command("replay_run", first, ABEYANCE_MODEL="", **{agents.NEWER: "1"})
    assert "another way from entry" in other.stderr
    step = r"Entry \d+, customer_desk\n +recorded: calls plan .*\n +today: +calls final_answer "
    assert re.match(step, other.stdout)

    ada.goto(f"/runs/{first}/")
    ada.get_by_role("link", name="Fork…").click()
    ada.wait_for_url("**/fork/**")
    result = ada.locator("summary", has_text="Result of look_up")
    earlier = ada.get_by_role("navigation", name="Entries").get_by_role("link").first
    for _ in range(20):
        if not result.count():
            ada.goto(earlier.get_attribute("href") or "")
    result.click()
    ada.get_by_label("Your result as JSON").fill('{"euros": 15}')
    ada.get_by_role("button", name="Fork with this change").click()
    ada.wait_for_url(lambda url: "/fork/" not in url)
    fork = run_of(ada)
    expect(ada.get_by_text("changed the result of look_up").first).to_be_visible()
    desk.finish(fork, "Pay 15 euros back for order A-1")
    ada.goto(f"/runs/{fork}/?tab=transcript")
    expect(ada.get_by_text("given by ada").first).to_be_visible()
    assert desk.office.run(first)["output"].startswith("40 euros")


def test_a_long_run_keeps_a_short_journal_and_a_large_result(desk: Desk) -> None:
    run = desk.office.begin("stocktake", shelves=agents.SHELVES)
    desk.open_request(run, "Close the books")
    ada = desk.open_run("ada", run)
    moved = re.compile("History before entry \\d+ was moved to the archive on")
    appears(ada, ada.get_by_text(moved))
    ada.goto(f"/runs/{run}/fork/3/")
    expect(ada.get_by_text(moved)).to_be_visible()
    ada.goto(f"/runs/{run}/?tab=transcript")
    ada.locator("summary", has_text="Show result").last.click()
    with ada.expect_download() as file:
        ada.get_by_role("link", name=re.compile(r"All \d+ bytes")).click()
    kept = json.loads(file.value.path().read_text())
    assert kept == {"shelf": agents.SHELVES, "list": "x" * agents.LARGE}
    desk.approve(run, "Close the books")
    desk.office.wait(run, "completed")
    assert "history begins at entry" in desk.command("verify_run", run).stdout


def test_an_old_run_leaves_postgres_and_comes_back(desk: Desk) -> None:
    run = desk.runs[0]
    aged = (
        "UPDATE runtime_run SET ended_at = ended_at - interval '31 days' WHERE id = %s RETURNING 1"
    )
    assert desk.office.stack.rows(aged, run) == [(1,)]
    done = desk.command("archive_runs")
    assert "1 of 1 runs are archived" in done.stdout, done.stderr
    admin = desk.page("admin")
    admin.goto('/runs/?q=key:"return A-1"')
    expect(admin.locator(".row", has_text="archived")).to_have_count(1)
    admin.get_by_role("link", name="return A-1").click()
    expect(admin.get_by_role("heading", name="Archived on")).to_be_visible()
    expect(admin.get_by_text("40 euros for order A-1 are on their way.").first).to_be_visible()
    admin.get_by_role("link", name="Restore…").click()
    admin.get_by_label("Reason").fill("A question of the customer.")
    admin.get_by_role("button", name="Restore").click()
    admin.goto(f"/runs/{run}/")
    expect(admin.get_by_role("heading", name="Archived on")).to_have_count(0)
    expect(admin.get_by_text("40 euros for order A-1 are on their way.").first).to_be_visible()


def test_a_message_cuts_a_reply_off_and_a_rate_limit_is_shown(desk: Desk) -> None:
    ada = desk.page("ada")
    desk.model.faults.append(Fault.HALF_OPEN)
    ada.goto("/agents/customer_desk/start/")
    ada.get_by_label("customer").fill("C-8")
    ada.get_by_label("order").fill("A-3")
    ada.get_by_role("button", name="Start the run").click()
    ada.wait_for_url("**/runs/*/")
    run = run_of(ada)
    assert desk.model.speaking.wait(60)
    ada.get_by_label("Message to the agent").fill("It is urgent.")
    ada.get_by_label("Cut off the reply").check()
    ada.get_by_role("button", name="Send").click()
    desk.open_request(run, "Pay 15 euros back for order A-3")
    marker = json.dumps([body["messages"] for body in desk.model.bodies[-3:]])
    assert "was cut off" in marker
    ada.goto(f"/runs/{run}/?tab=transcript")
    expect(ada.get_by_text("It is urgent.").first).to_be_visible()

    desk.model.retry_after = 3600  # last in this file, because no agent has a reply for a while
    desk.model.faults.append(Fault.RATE_LIMIT)
    desk.approve(run, "Pay 15 euros back for order A-3")
    ada.goto(f"/runs/{run}/")
    appears(ada, ada.get_by_role("heading", name="Waits for a rate limit: openai:desk-1"))
    expect(ada.get_by_text("put off 1 time")).to_be_visible()
    ada.get_by_role("link", name="Cancel…").click()
    ada.get_by_label("Reason").fill("Too late.")
    ada.get_by_role("button", name="Cancel this run").click()
    desk.office.wait(run, "cancelled")

    admin = desk.page("admin")
    admin.goto("/overview/")
    worker = admin.get_by_role("region", name="Time to commit a step, by worker")
    expect(worker).to_contain_text(re.compile(r"\d+\.\d ms"))
    ada.goto("/tools/")
    tool = ada.get_by_role("region", name="pay_back")
    expect(tool).to_contain_text(re.compile(r"approval required\s*can be repeated"))
    expect(tool).to_contain_text(re.compile(r"Used by customer_desk\. \d+ calls?: \d+ % errors"))
