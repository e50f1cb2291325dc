"""The installation of a shop's agents, with their model server, a bank behind OAuth, and a browser for each person."""

import base64
import hashlib
import hmac
import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from re import Pattern
from typing import Any
from urllib.parse import urlsplit

import httpx2
from playwright.sync_api import Browser, Locator, Page, expect
from redis import Redis

from agents.sdk.scripts import SUM_UP_MEMORY
from agents.sdk.spec import AgentSpec
from tests.browser.conftest import logged_in
from tests.support import processes
from tests.support.commands import Done, manage
from tests.support.oauth_server import SECRET, TokenServer, token_server
from tests.support.people import Office, until
from tests.support.provider.faults import Fault
from tests.support.provider.protocol import completion_of
from tests.support.provider.server import KEY, Provider
from tests.support.scripted_agents import customer_desk as agents
from tests.support.specs import registry_of
from tests.support.stack import Stack

CHIEF = """from approvals.people.accounts import create_person
from approvals.rules.roles import Group
create_person(username="chief", password="a second admin", groups=[Group.ADMINS])
"""
PASSWORDS = {"chief": "a second admin"}
ANSWER = "Give the answer to the requester"
STREAM = "parcels"
SUMMARY = "Parcel P-1 came on time."
NEWER = {"SIGNOFF_MODEL": "", agents.NEWER: "1"}  # the environment of a worker with newer scripts


class Model(Provider):
    """The model server of all agents, one of which has any version of its prompt."""

    def answer(self, body: dict[str, Any]) -> tuple[Fault | None, dict[str, Any]]:
        if str(body["messages"][-1]["content"]).startswith(SUM_UP_MEMORY):
            message = {"role": "assistant", "content": SUMMARY}
            return None, completion_of(message, body["model"])
        return super().answer(body)

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

    def deliver(self, address: str, secret: str, id: str, data: dict[str, str]) -> int:
        """Send a delivery to a webhook with a signature of Standard Webhooks; return the status."""
        body, now = json.dumps(data).encode(), str(int(time.time()))
        signed = b".".join((id.encode(), now.encode(), body))
        digest = hmac.digest(
            base64.b64decode(secret.removeprefix("whsec_")), signed, hashlib.sha256
        )
        signature = f"v1,{base64.b64encode(digest).decode()}"
        headers = {"webhook-id": id, "webhook-timestamp": now, "webhook-signature": signature}
        return self.post(urlsplit(address).path, body, **headers).status_code

    def start(self, agent: str, **given: str) -> Page:
        """Ada's window with a run that she starts by the form; `given` are its fields by their labels."""
        page = self.page("ada")
        page.goto(f"/agents/{agent}/start/")
        for label, text in given.items():
            page.get_by_label(label.replace("_", " ")).fill(text)
        page.get_by_role("button", name="Start the run").click()
        page.wait_for_url("**/runs/*/")
        return page

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

    def command(self, *words: object, by: str = "worker", **more: str) -> Done:
        """Run a command as a worker, or another program, would."""
        return manage(*words, env=self.environ(by) | more)

    def environ(self, of: str) -> dict[str, str]:
        return dict(self.office.stack.named(f"config.{of}")[0].environ())

    def send(self, **entry: str) -> None:
        """Add an entry to the stream of parcels."""
        with Redis.from_url(self.environ("web")["REDIS_URL"]) as broker:
            broker.xadd(STREAM, entry)

    def expect_replay(self, run: str, said: Pattern[str]) -> None:
        """Have a worker with newer scripts, alone, replay the run, and expect these words of the steps that differ."""
        admin, older = self.page("admin"), processes.of(self.office.stack, "worker").process
        older.suspend()
        try:
            with processes.another(self.office.stack, "worker", "newer", **NEWER):
                admin.goto(f"/runs/{run}/")
                admin.get_by_role("link", name="Replay with today's code…").click()
                admin.get_by_role("button", name="Replay with today's code").click()
                steps = admin.get_by_role("region", name="Steps that would go another way")
                expect(steps).to_contain_text(said, timeout=60_000)  # the sweeper may send it again
        finally:
            older.resume()


@contextmanager
def opened(sandbox: Path, chromium: Browser) -> Iterator[Desk]:
    refresh = sandbox / "refresh"
    refresh.write_text("canary-refresh-1")
    refresh.chmod(0o644)  # workers may run under another account
    with token_server() as bank, Model(registry_of(agents.stocktake, agents.parcels)) as model:
        given = {
            "SIGNOFF_AGENTS": agents.__name__,
            "SIGNOFF_MODEL": "openai:desk-1",
            "OPENAI_BASE_URL": model.url,
            "OPENAI_API_KEY": KEY,
            "SIGNOFF_ARCHIVE": "30",
            "SIGNOFF_HISTORY_DAYS": "0",
            "SIGNOFF_STREAMS": STREAM,
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
    page.wait_for_url(re.compile("/runs/[0-9a-f-]{36}/"))
    return urlsplit(page.url).path.split("/")[2]


def end_for_good(page: Page) -> None:
    """End a schedule or trigger on its page, which asks first."""
    end = page.get_by_role("button", name="End for good")
    expect(end).to_be_hidden()
    page.locator("summary", has_text="End…").click()
    end.click()
    expect(page.get_by_text("It has ended.").first).to_be_visible()
