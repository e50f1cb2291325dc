"""`make screenshots`: starts the application, makes runs and decisions, and takes pictures for docs/img."""

import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, sync_playwright

from config.env.environment import ROOT
from tests.docs.pages import README, blocks
from tests.support.commands import CHROMIUM, FLAGS
from tests.support.people import Office
from tests.support.stack import Stack

IMAGES = ROOT / "docs" / "img"
DESKTOP, PHONE = (1440, 900), (390, 844)

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")  # for the server of forks


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """One screenshot: a person and an address. `{…}` in `path` stands for a created object."""

    name: str
    path: str
    person: str = "bea"
    size: tuple[int, int] = DESKTOP
    scheme: Literal["light", "dark"] = "light"


PICTURES = (
    Picture(name="inbox", path="/inbox/"),
    Picture(name="inbox-dark", path="/inbox/", scheme="dark"),
    Picture(name="inbox-phone", path="/inbox/", size=PHONE),
    Picture(name="approval", path="/a/{approval}/"),
    Picture(name="approval-phone", path="/a/{approval}/", size=PHONE),
    Picture(name="run", path="/runs/{run}/", person="ada", size=(1440, 1100)),
    Picture(name="agents", path="/agents/", person="ada"),
)


def take_all(folder: Path) -> None:
    """Take every picture anew; raises AssertionError if one cannot be taken."""
    own = folder / "agents"
    own.mkdir(mode=0o755)
    (block,) = blocks(README, "python")
    (own / "refunds.py").write_text(block.text, encoding="utf-8")
    chosen = "agents.flows.hr,refunds"
    IMAGES.mkdir(exist_ok=True)
    with (
        Stack(folder / "home", AGENTS_DIR=str(own), SIGNOFF_AGENTS=chosen) as stack,
        sync_playwright() as playwright,
    ):
        made = _work(Office(stack))
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        for picture in PICTURES:
            _take(browser, stack, picture, made)
        browser.close()


def _work(office: Office) -> dict[str, str]:
    """A working day: runs that wait, one that was approved, one that was denied."""
    _, page = office.stack.ask("ada", "GET", "/api/v1/runs?limit=50")
    first = {run["input"]["username"]: run["id"] for run in page["items"]}
    office.decide("bea", office.approval(first["newhire1"]), "approve")
    office.wait(first["newhire1"], "completed")
    early = office.start("hr_onboarding", "newhire4", level=5)
    office.wait(early, "suspended")
    office.decide("bea", office.approval(early), "deny", "Level 5 needs a ticket.")
    office.wait(early, "completed")
    both = office.start("hr_access_bundle", "newhire5", level=2)
    office.wait(both, "suspended")
    body = {"agent": "refunds", "input": {"number": "A-1"}}
    status, refund = office.stack.ask("ada", "POST", "/api/v1/runs", body)
    assert status == 201, refund
    office.wait(refund["id"], "suspended")
    return {"approval": office.approval(first["newhire2"])["id"], "run": first["newhire1"]}


def _take(browser: Browser, stack: Stack, picture: Picture, made: dict[str, str]) -> None:
    width, height = picture.size
    page = browser.new_page(
        base_url=stack.url,
        viewport={"width": width, "height": height},
        color_scheme=picture.scheme,
        reduced_motion="reduce",
    )
    page.goto("/login/")
    page.get_by_label("Username").fill(picture.person)
    page.get_by_label("Password").fill(stack.credentials["users"][picture.person]["password"])
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(lambda url: "/login/" not in url)
    answer = page.goto(picture.path.format(**made))
    assert answer, picture.name
    assert answer.ok, f"{picture.name}: {answer.status}"
    if page.locator("[data-live]").count():
        page.locator(".live[data-state=live]").wait_for()
    if page.locator("#panel:visible").count():
        page.locator("#panel h1").wait_for()
    page.screenshot(path=IMAGES / f"{picture.name}.png")
    page.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="signoff-pictures-") as name:
        Path(name).chmod(0o755)
        take_all(Path(name))
    sys.stdout.write(f"{len(PICTURES)} pictures are in {IMAGES.relative_to(ROOT)}/\n")
