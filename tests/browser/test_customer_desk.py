"""An agent in daily work on one installation: a model server that it asks over HTTP, a bank behind OAuth, and people.

The tests are one story: each finds the runs of the one before.
"""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.shop import (
    ANSWER,
    CHIEF,
    STREAM,
    SUMMARY,
    Desk,
    appears,
    end_for_good,
    opened,
    run_of,
)
from tests.support.provider.faults import Fault
from tests.support.provider.protocol import instructions_of
from tests.support.scripted_agents import customer_desk as agents

pytestmark = [pytest.mark.browser, pytest.mark.e2e]


@pytest.fixture(scope="module")
def desk(sandbox: Path, chromium: Browser) -> Iterator[Desk]:
    with opened(sandbox, chromium) as desk:
        yield desk


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
    ada.get_by_role("button", name="Create trigger").click()
    expect(ada.get_by_text("No event has come yet.")).to_be_visible()

    token = desk.office.stack.credentials["users"]["admin"]["token"]
    event = {"ce-specversion": "1.0", "ce-id": "r-1", "ce-source": "/shop"}
    sent = {**event, "ce-type": "order.returned", "Authorization": f"Bearer {token}"}
    for status in (201, 200):  # the second one is the same event
        answer = desk.post("/api/v1/events", json.dumps(returned).encode(), **sent)
        assert answer.status_code == status, answer.text
    appears(ada, ada.get_by_role("link", name="r-1")).click()
    desk.runs.append(run_of(ada))
    expect(ada.get_by_role("heading", name="Customer desk · return A-1")).to_be_visible()

    bea.goto("/")
    appears(bea, bea.get_by_role("link", name="Pay 40 euros back for order A-1")).click()
    bea.locator("summary", has_text="People and policy").click()
    bea.get_by_label("Comment for people").fill("Is he a regular?")
    bea.get_by_role("button", name="Add comment").click()
    comments = bea.get_by_role("region", name="Comments").get_by_role("list")
    expect(comments).to_contain_text("Is he a regular?")
    assert (comments.bounding_box() or {"height": 900})["height"] < 100
    item = bea.get_by_role("region", name="Item of the plan")
    expect(item).to_contain_text("item 2 of 3")
    expect(item).to_contain_text("Pay the money back")
    plan = appears(ada, ada.get_by_role("region", name="Plan of Customer desk"))
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
    expect(ada.get_by_role("region", name="Plan of Customer desk")).to_contain_text("2 of 3 done")
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
    codes = ada.locator("code.mono")
    expect(codes.nth(1)).to_be_visible()
    address, secret = codes.all_inner_texts()[:2]
    returned = {"customer": "C-7", "order": "A-2", "country": "DE"}
    for key, status in (("none", 401), (secret, 202), (secret, 200)):
        assert desk.deliver(address, key, "w-1", returned) == status
    ada.goto("/triggers/")
    ada.get_by_role("link", name="Returned orders").click()
    expect(ada.get_by_text("1 delivery was refused")).to_be_visible()
    appears(ada, ada.get_by_role("link", name="w-1")).click()
    desk.runs.append(run := run_of(ada))
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
    expect(admin.get_by_text("A worker tries it.")).to_be_visible()
    appears(admin, admin.get_by_text("10 replies, of which 0 differ"))
    expect(admin.get_by_role("region", name=f"Run {desk.runs[0]}")).to_contain_text(
        re.compile("pay.back", re.IGNORECASE)
    )
    admin.get_by_role("link", name=f"← {agents.PROMPT}").click()
    admin.locator("summary", has_text="Text, and label").click()
    admin.get_by_label("Label", exact=True).fill("staging")
    admin.get_by_role("button", name="Set the label").click()
    propose = admin.get_by_role("button", name=re.compile("Propose for production.*version 1"))
    propose.click()
    expect(admin.get_by_role("heading", name="Version 1", exact=True)).to_be_visible()
    expect(propose).to_have_count(0)
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
    ada.get_by_role("button", name="Create schedule").click()
    expect(ada.get_by_role("region", name="Next times").get_by_role("listitem")).to_have_count(5)
    ada.get_by_role("button", name="Run now").click()
    history = ada.get_by_role("region", name="History")
    expect(history).to_contain_text("started by hand by ada")
    history.get_by_role("link").first.click()
    desk.runs.append(run := run_of(ada))
    desk.finish(run, "Pay 15 euros back for order A-3")
    ada.reload()
    expect(ada.get_by_text("shop/desk, version 1")).to_be_visible()
    expect(ada.get_by_role("link", name="Monday returns")).to_be_visible()
    wordings = {instructions_of(body) for body in desk.model.bodies[-4:]}
    assert wordings == {text.replace("{order}", "A-3")}

    file = desk.refresh.with_name("prompt.yaml")
    file.write_text(desk.command("prompts", "export", agents.PROMPT, by="web").stdout)
    file.write_text(file.read_text().replace("kindly", "warmly"))
    done = desk.command("prompts", "import", file, by="web")
    assert done.stdout == f"Version 2 of {agents.PROMPT} is saved.\n", done.stderr
    admin.reload()
    version = admin.get_by_role("region", name="Versions").get_by_role("listitem")
    expect(version.nth(0)).to_contain_text("by the command line")
    expect(version.nth(1)).to_contain_text(re.compile("production.*staging", re.DOTALL))
    back = re.compile("Propose for production.*the text in the code")
    admin.get_by_role("button", name=back).click()
    expect(admin.get_by_role("button", name=back)).to_have_count(0)
    chief.reload()
    chief.get_by_role("button", name="Confirm the text in the code").click()
    expect(chief.get_by_role("heading", name="In production: the text in the code")).to_be_visible()


def test_a_schedule_starts_runs_for_past_times_and_ends(desk: Desk) -> None:
    ada = desk.page("ada")
    ada.goto("/schedules/")
    ada.get_by_role("link", name="Monday returns").click()
    ada.locator("summary", has_text="Back-fill…").click()
    first = datetime.now(UTC).replace(hour=0, minute=0) - timedelta(days=8)
    last = first + timedelta(days=7)
    for begin, until, said in (
        (last, first, "must not be before the beginning of the range"),
        (first, last, "The past times of this range wait for their turn."),
    ):
        ada.get_by_label("From").fill(f"{begin:%Y-%m-%dT%H:%M:%S}")
        ada.get_by_label("Until").fill(f"{until:%Y-%m-%dT%H:%M:%S}")
        ada.get_by_role("button", name="Back-fill", exact=True).click()
        expect(ada.get_by_text(said)).to_be_visible()
    history = ada.get_by_role("region", name="History").get_by_role("listitem")
    past = history.filter(has_text="back-filled by ada")
    appears(ada, past.get_by_text("Waiting for a person"))
    expect(past).to_have_count(1)
    expect(past).to_contain_text("09:00:00")
    end_for_good(ada)
    expect(history).to_have_count(2)


def test_two_runs_are_compared_one_replayed_and_one_forked(desk: Desk) -> None:
    first, second, _ = desk.runs
    ada = desk.page("ada")
    ada.goto("/runs/")
    for run in (first, second):
        ada.locator(f"input[value='{run}']").check()
    ada.get_by_role("button", name="Compare two selected runs").click()
    expect(ada.get_by_role("heading", name="Two runs side by side")).to_be_visible()
    call = ada.get_by_role("region", name="Differences").get_by_role("listitem")
    paid = call.filter(has=ada.get_by_text(re.compile("^pay.back$", re.IGNORECASE)))
    expect(paid).to_contain_text(
        re.compile(r"First: arguments.*40.*Second: arguments.*90", re.DOTALL)
    )

    other = desk.command("replay_run", first, SIGNOFF_MODEL="", **{agents.NEWER: "1"})
    assert "another way from entry" in other.stderr
    step = r"(?i)Entry \d+, customer.desk\n +recorded: calls plan .*\n +today: +calls final.answer "
    assert re.match(step, other.stdout)
    desk.expect_replay(
        first, re.compile(r"Recorded.*\bplan\b.*Today.*final.answer", re.DOTALL | re.IGNORECASE)
    )
    ada.goto(f"/runs/{first}/")
    ada.get_by_role("link", name="Fork…").click()
    ada.wait_for_url("**/fork/**")
    result = ada.locator("summary", has_text=re.compile("Result of look.up", re.IGNORECASE))
    earlier = ada.get_by_role("navigation", name="Entries").get_by_role("link").first
    for _ in range(20):
        if not result.count():
            ada.goto(earlier.get_attribute("href") or "")
    result.click()
    ada.get_by_label("Your result as JSON").fill('{"euros": 15}')
    place = ada.url
    ada.get_by_role("button", name="Fork with this change").click()
    ada.wait_for_url(lambda url: "/fork/" not in url)
    fork = run_of(ada)
    expect(
        ada.get_by_text(re.compile("changed the result of look.up", re.IGNORECASE)).first
    ).to_be_visible()
    desk.finish(fork, "Pay 15 euros back for order A-1")
    ada.goto(f"/runs/{fork}/?tab=transcript")
    expect(ada.get_by_text("given by ada").first).to_be_visible()

    ada.goto(place)
    ada.locator("summary", has_text="Reply of the model").click()
    reply = ada.get_by_label("Text of your reply")
    calls = ada.get_by_label("Calls of your reply as JSON")
    calls.fill("[{")
    ada.get_by_role("button", name="Fork with this change").locator("visible=true").click()
    expect(ada.get_by_role("alert")).to_contain_text("is not JSON (line 1)")
    reply.fill("We paid you by hand.")
    calls.fill("")
    ada.get_by_role("button", name="Fork with this change").locator("visible=true").click()
    ada.wait_for_url(lambda url: "/fork/" not in url)
    given = run_of(ada)
    appears(ada, ada.get_by_text("reply given by ada").first)
    bea = desk.open_request(given, ANSWER)
    expect(bea.get_by_text("We paid you by hand.").first).to_be_visible()
    desk.approve(given, ANSWER)
    desk.office.wait(given, "completed")
    assert desk.office.run(given)["output"] == "We paid you by hand."
    assert desk.office.run(first)["output"].startswith("40 euros")


def test_an_entry_of_a_stream_wakes_its_run_and_the_next_one_starts_one(desk: Desk) -> None:
    admin = desk.page("admin")
    ada = desk.start("parcels", parcel="P-1", Business_key="parcel P-1", Thread="C-7")
    appears(ada, ada.get_by_text('parcel.arrived with {"parcel": "P-1"}'))
    admin.goto("/triggers/new/?agent=parcels")
    admin.get_by_label("Name", exact=True).fill("Parcels")
    admin.get_by_label("Event", exact=True).fill("parcel.arrived")
    admin.get_by_label("Input of each run").fill('{"parcel": "{{data.parcel}}"}')
    admin.get_by_label("Business key").fill("'parcel ' + data.parcel")
    admin.get_by_label("Thread").fill("'C-7'")
    admin.locator("summary", has_text="Wake runs that wait").click()
    admin.get_by_label("An event of the source or the webhook").select_option("first")
    admin.locator("summary", has_text="Read events from a source").click()
    admin.get_by_label("Stream").fill(STREAM)
    admin.get_by_role("button", name="Create trigger").click()
    expect(admin.get_by_text("No event has come yet.")).to_be_visible()
    events = admin.get_by_role("region", name="Events").get_by_role("listitem")
    desk.send(parcel="P-1", by="Bo")
    appears(admin, events.get_by_text("woke its run"))
    desk.office.wait(run_of(ada), "completed")
    ada.reload()
    expect(ada.get_by_text("P-1 came with Bo.").first).to_be_visible()

    desk.send(parcel="P-2", by="Cy")
    appears(admin, events.filter(has_text="parcel P-2")).get_by_role("link").click()
    memory = admin.get_by_role("region", name="Remembers")
    appears(admin, memory.get_by_text("summed this up"))
    expect(memory).to_contain_text(SUMMARY)
    expect(memory.get_by_role("listitem")).to_have_count(3)
    admin.goto("/triggers/")
    admin.get_by_role("link", name="Parcels").click()
    end_for_good(admin)


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
    aged = "UPDATE runtime_run SET ended_at = ended_at - interval '31 d' WHERE id = %s RETURNING 1"
    assert desk.office.stack.rows(aged, run) == [(1,)]
    admin = desk.page("admin")
    admin.goto(f"/runs/{run}/")
    for act, button in (("Hold this run…", "Hold this run"), ("Lift the hold…", "Lift the hold")):
        admin.get_by_role("link", name=act).click()
        admin.get_by_label("Reason").fill("A lawsuit.")
        admin.get_by_role("button", name=button).click()
        held = admin.get_by_role("heading", name="Under a legal hold by admin")
        archived = int(act.startswith("Lift"))
        expect(held).to_have_count(1 - archived)
        done = desk.command("archive_runs")
        assert f"{archived} of {archived} runs are archived" in done.stdout, done.stderr
    admin.goto('/runs/?q=key:"return A-1"')
    expect(admin.locator(".row", has_text="archived")).to_have_count(1)
    admin.get_by_role("link", name="return A-1").click()
    expect(admin.get_by_role("heading", name="Archived on")).to_be_visible()
    expect(admin.get_by_text("40 euros for order A-1 are on their way.").first).to_be_visible()
    admin.get_by_role("link", name="Restore…").click()
    admin.get_by_label("Reason").fill("A question of the customer.")
    admin.get_by_role("button", name="Restore").click()
    admin.wait_for_url(f"**/runs/{run}/")
    expect(admin.get_by_role("heading", name="Archived on")).to_have_count(0)
    expect(admin.get_by_text("40 euros for order A-1 are on their way.").first).to_be_visible()


def test_a_message_cuts_a_reply_off_and_a_rate_limit_is_shown(desk: Desk) -> None:
    desk.model.faults.append(Fault.HALF_OPEN)
    ada = desk.start("customer_desk", customer="C-8", order="A-3")
    run = run_of(ada)
    assert desk.model.speaking.wait(60)
    ada.get_by_label("Message to the agent").fill("It is urgent.")
    ada.get_by_label("Cut off the reply").check()
    ada.get_by_role("button", name="Send").click()
    expect(ada.get_by_label("Message to the agent")).to_have_value("")
    desk.open_request(run, "Pay 15 euros back for order A-3")
    marker = json.dumps([body["messages"] for body in desk.model.bodies[-3:]])
    assert "was cut off" in marker
    ada.goto(f"/runs/{run}/?tab=transcript")
    expect(ada.get_by_text("It is urgent.").first).to_be_visible()
    for said in ("Pay it at once.", "Thank you."):
        ada.get_by_label("Message to the agent").fill(said)
        ada.get_by_role("button", name="Send").click()
        expect(ada.get_by_label("Message to the agent")).to_have_value("")
        appears(ada, ada.get_by_text(said))
    ada.get_by_role("link", name="Fork…").click()
    ada.wait_for_url("**/fork/**")
    ada.locator("summary", has_text="waits for the agent: “Pay it at once.”").click()
    ada.get_by_label("Your message").first.fill("Ask him first.")
    ada.get_by_role("button", name="Fork with this change").first.click()
    ada.wait_for_url(lambda url: "/fork/" not in url)
    expect(ada.get_by_text("changed a message").first).to_be_visible()
    ada.goto(f"/runs/{run_of(ada)}/?tab=transcript")
    expect(ada.get_by_text("Ask him first.").first).to_be_visible()
    expect(ada.get_by_text("Pay it at once.")).to_have_count(0)
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
    worker = admin.get_by_role("region", name="Worker speed", exact=True)
    expect(worker).to_contain_text(re.compile(r"\d+\.\d ms"))
    ada.goto("/tools/")
    tool = ada.get_by_role("region", name="Pay back")
    expect(tool).to_contain_text(re.compile(r"approval required\s*can be repeated"))
    expect(tool).to_contain_text(re.compile(r"Used by Customer desk\. \d+ calls?: \d+ % errors"))
