"""Actions of people over HTTP on the whole application, and their effects on the outside world."""

import email
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from config.local.http_client import Unreachable, request
from tests.support import forks
from tests.support.stack import Stack

T = TypeVar("T")

WITHIN = 60.0


def newcomer(name: str, level: int = 3) -> dict[str, Any]:
    return {
        "full_name": "New Hire",
        "email": f"{name}@example.org",
        "username": name,
        "security_level": level,
    }


class Office:
    """The cast at work on a running stack."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack

    def start(self, agent: str, name: str, level: int = 3) -> str:
        return self.begin(agent, business_key=name, **newcomer(name, level))

    def begin(self, agent: str, business_key: str | None = None, **given: Any) -> str:
        body = {"agent": agent, "input": given, "business_key": business_key}
        status, run = self.stack.ask("ada", "POST", "/api/v1/runs", body)
        assert status == 201, run
        return str(run["id"])

    def run(self, run: str) -> dict[str, Any]:
        status, found = self.stack.ask("ada", "GET", f"/api/v1/runs/{run}")
        assert status == 200, found
        return dict(found)

    def wait(self, run: str, *statuses: str) -> dict[str, Any]:
        """The run once its status is one of these."""

        def reached() -> dict[str, Any] | None:
            found = self.run(run)
            return found if found["status"] in statuses else None

        return until(reached, f"run {run} to be {' or '.join(statuses)}")

    def approval(self, run: str) -> dict[str, Any]:
        """The one pending approval of a run, as Bea sees it."""
        path = f"/api/v1/approvals?status=pending&run={run}"
        _, found = self.stack.ask("bea", "GET", path)
        (approval,) = found["items"]
        return dict(approval)

    def decide(
        self, person: str, approval: dict[str, Any], verdict: str, reason: str = ""
    ) -> tuple[int, Any]:
        body = {"verdict": verdict, "digest": approval["digest"], "reason": reason}
        body["confirm"] = approval["confirm"]
        return self.stack.ask(person, "POST", f"/api/v1/approvals/{approval['id']}/decision", body)

    def events(self, run: str) -> list[dict[str, Any]]:
        """Everything in the journal of a run, in order."""
        _, page = self.stack.ask("ada", "GET", f"/api/v1/runs/{run}/journal?limit=200")
        assert page["next"] is None
        return [event for item in page["items"] for event in item["events"]]

    # The world outside

    def accounts(self, name: str) -> list[dict[str, Any]]:
        scim = self.stack.credentials["scim"]
        where = quote(f'userName eq "{name}"')
        path = f"/v2/Users?filter={where}"
        _, found = request(scim["url"].removesuffix("/v2"), "GET", path, token=scim["token"])
        return list(found.get("Resources", []))

    def roles(self, name: str) -> list[str]:
        (account,) = self.accounts(name)
        return [role["value"] for role in account.get("roles", [])]

    def mails(self, name: str) -> int:
        folder = Path(self.stack.credentials["mail"]["folder"])
        letters = [email.message_from_bytes(path.read_bytes()) for path in folder.glob("*.eml")]
        return sum(letter["To"] == f"{name}@example.org" for letter in letters)

    def execute(self, code: str, **other: str) -> str:
        """Run Python inside the application, as its web process would, and return its output.

        `other` are variables that differ from those of the web.
        """
        web = self.stack.named("config.web")[0]
        done = forks.run(
            "manage.py", "shell", "--no-imports", "-c", code, env=web.environ() | other
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


def until(condition: Callable[[], T | None], what: str, within: float = WITHIN) -> T:
    """Poll until there is an answer, since events in other processes cannot be waited for."""
    began = time.monotonic()
    while True:
        try:
            if (found := condition()) is not None:
                return found
        except Unreachable:
            pass
        waited = time.monotonic() - began
        assert waited < within, f"waited {within:g} s for {what}"
        # Between two looks at other processes, which take their time: ever less often, up to four times a second.
        time.sleep(min(max(0.05, waited / 10), 0.25))
