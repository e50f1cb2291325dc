"""An installation, agents of other frameworks that ask it, and a table of what became of them."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from tests.interop.frameworks import FRAMEWORKS, Framework, Plan, Program
from tests.support.people import Office, until
from tests.support.stack import Stack

ALL = "INTEROP"  # variable of `make interop`
collect_ignore = [] if os.environ.get(ALL) else ["test_mcp_tasks.py"]  # its environment is CrewAI's


class Desk:
    """Bea, who decides what instances ask."""

    def __init__(self, stack: Stack) -> None:
        self.office = Office(stack)
        self.url = f"{stack.url}/api/aap"

    def provision(self, name: str) -> str:
        """Return the credential of a new instance."""
        token = self.office.stack.credentials["users"]["admin"]["token"]
        headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": str(uuid4())}
        address = f"{self.url}/v1/instances"
        answer = httpx2.post(address, headers=headers, json={"instance_name": name})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["credential"]["token"])

    def asked(self, name: str, status: str) -> list[dict[str, Any]]:
        """List the requests of the instance in this state, the newest first."""
        path = f"/api/v1/approvals?status={status}&limit=100"
        _, page = self.office.stack.ask("bea", "GET", path)
        return [item for item in page["items"] if item["sentence"].startswith(f"Let {name} call")]

    def wait(self, name: str, count: int = 1, status: str = "pending") -> list[dict[str, Any]]:
        """Wait until so many of its requests have this status, in the order of their arguments."""

        def read() -> list[dict[str, Any]] | None:
            waiting = self.asked(name, status)
            return waiting if len(waiting) == count else None

        return sorted(
            until(read, f"{count} requests of {name}"), key=lambda item: str(item["args"])
        )

    def decide(self, approval: dict[str, Any], verdict: str, reason: str = "") -> None:
        status, answer = self.office.decide("bea", approval, verdict, reason)
        assert status == 200, answer


class ForeignAgent:
    """An agent of a framework, and its instance here, for one test."""

    def __init__(self, programs: "Programs", desk: Desk, folder: Path) -> None:
        self.programs, self.desk, self.folder = programs, desk, folder
        self.name = f"{programs.framework.name} {uuid4().hex[:8]}"
        self.token = desk.provision(self.name)

    def begin(self, *amounts: int, timeout: str = "5m", url: str = "", block: str = "") -> Plan:
        """Begin an agent that wants to pay these amounts."""
        plan = Plan(
            url=url or self.desk.url,
            token=self.token,
            thread=str(uuid4()),
            timeout=timeout,
            amounts=amounts,
            folder=str(self.folder),
            block=block,
        )
        self.programs.current.begin(plan)
        return plan

    def results(self) -> list[str]:
        """Wait for the end of the agent: what its model read of its calls."""
        return self.programs.current.results()

    def request(self, method: str, approval: dict[str, Any]) -> dict[str, Any]:
        """Send what the instance itself may send about its request."""
        address = f"{self.desk.url}/v1/requests/{approval['run']}"
        headers = {"Authorization": f"Bearer {self.token}"}
        answer = httpx2.request(method, address, headers=headers)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())


class Programs:
    """The program of a framework, and one more that is ready when the first is killed."""

    def __init__(self, framework: Framework, home: Path) -> None:
        self.framework = framework
        self.current, self._spare = Program(framework, home), Program(framework, home)

    def replace(self) -> None:
        """Kill the first program, and go on with the other."""
        self.current.kill()
        self.current = self._spare

    def close(self) -> None:
        self.current.kill()
        self._spare.kill()


def chosen() -> list[Framework]:
    """List the frameworks of this run."""
    return [one for one in FRAMEWORKS if one.in_every_run or os.environ.get(ALL)]


@pytest.fixture(scope="package")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Programs]]:
    """The programs of all frameworks. They import their packages while the installation starts."""
    started = {one.name: Programs(one, tmp_path_factory.mktemp(one.program)) for one in chosen()}
    yield started
    for programs in started.values():
        programs.close()


@pytest.fixture(scope="package")
def desk(started: dict[str, Programs], sandbox: Path) -> Iterator[Desk]:
    with Stack(sandbox / "interop") as stack:
        yield Desk(stack)


@pytest.fixture(scope="module", params=[framework.name for framework in chosen()])
def programs(request: pytest.FixtureRequest, started: dict[str, Programs]) -> Programs:
    return started[request.param]


@pytest.fixture
def agent(desk: Desk, programs: Programs, tmp_path: Path) -> ForeignAgent:
    return ForeignAgent(programs, desk, tmp_path)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table: framework, case, outcome."""
    outcomes: dict[str, dict[str, str]] = {}
    for word in ("passed", "failed", "error"):
        for report in terminalreporter.getreports(word):
            match = re.search(r"test_frameworks\.py::test_(\w+)\[(.+)\]", report.nodeid)
            if match and report.when != "teardown":
                cases = outcomes.setdefault(match[2], {})
                cases[match[1].replace("_", " ")] = "ok" if word == "passed" else "FAILED"
    if not outcomes:
        return
    terminalreporter.section("frameworks")
    for case in next(iter(outcomes.values())):
        cells = "  ".join(f"{name}: {cases.get(case, '-')}" for name, cases in outcomes.items())
        terminalreporter.write_line(f"{case:60} {cells}")
