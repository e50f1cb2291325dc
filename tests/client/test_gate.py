"""`signoff ask` and `@approved` by the Agent Approval Protocol."""

import asyncio
import os
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from signoff_client import NotApproved, approved
from signoff_client.gate import INSTANCE_TOKEN, URL
from tests.client.provider import TOKEN, FakeProvider, serve
from tests.client.terminal import Terminal


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeProvider]:
    """A provider that approves when it is asked whether a decision was made."""
    provider = FakeProvider(auto=None)
    decide_at_the_first_look(provider, "approved")
    with serve(provider) as url:
        monkeypatch.setenv(URL, url)
        monkeypatch.setenv(INSTANCE_TOKEN, TOKEN)
        yield provider


def decide_at_the_first_look(provider: FakeProvider, status: str, note: str | None = None) -> None:
    def look(request: httpx.Request) -> None:
        if request.method == "GET":
            provider.decide(request.url.path.rpartition("/")[2], status, note)

    provider.intercept = look


def script(tmp_path: Path, status: int = 0) -> list[str]:
    """A command that adds a line to the file `runs`."""
    file = shlex.quote(str(tmp_path / "runs"))
    return ["sh", "-c", f"echo deployed >> {file}; exit {status}"]


def runs(tmp_path: Path) -> int:
    file = tmp_path / "runs"
    return len(file.read_text().splitlines()) if file.exists() else 0


def test_a_command_runs_after_the_approval_and_reports(
    provider: FakeProvider, terminal: Terminal, tmp_path: Path
) -> None:
    command = script(tmp_path)
    words = ("--tool", "deploy", "--arg", "version=1.4.2", "--arg", "count:=3", "--risk", "high")
    result = terminal.run("ask", *words, "--reason", "Fixes the login.", "--", *command)
    assert (result.status, runs(tmp_path)) == (0, 1)
    assert "waits for a person until" in result.err
    stored = provider.only()
    assert stored.body["arguments"] == {"version": "1.4.2", "count": 3, "command": command}
    assert (stored.body["tool"], stored.body["timeout"]) == ("deploy", "24h")
    assert stored.body["agent_reasoning"] == "Fixes the login."
    assert stored.body["context"]["risk"] == "high"
    assert stored.outcome is not None
    assert (stored.outcome["status"], stored.outcome["note"]) == ("succeeded", "exit status 0")


@pytest.mark.parametrize(
    ("decision", "status"), [("denied", 120), ("expired", 121), ("cancelled", 121)]
)
def test_a_command_does_not_run_without_an_approval(
    provider: FakeProvider, terminal: Terminal, tmp_path: Path, decision: str, status: int
) -> None:
    decide_at_the_first_look(provider, decision, "Not on a Friday." if status == 120 else None)
    result = terminal.run("ask", "--tool", "deploy", "--json", "--", *script(tmp_path))
    assert (result.status, runs(tmp_path)) == (status, 0)
    assert result.json["status"] == decision
    assert ("Not on a Friday." in result.err) == (decision == "denied")
    assert provider.only().consumed_at is None


def test_the_status_of_the_command_is_that_of_ask(
    provider: FakeProvider, terminal: Terminal, tmp_path: Path
) -> None:
    result = terminal.run("ask", "--tool", "deploy", "--json", "--", *script(tmp_path, status=3))
    assert (result.status, result.json["exit"]) == (3, 3)
    outcome = provider.only().outcome
    assert outcome is not None
    assert (outcome["status"], outcome["note"]) == ("failed", "exit status 3")
    killed = terminal.run("ask", "--tool", "deploy", "--", "sh", "-c", "kill -9 $$")
    assert killed.status == 128 + signal.SIGKILL


def test_a_command_runs_once_for_its_key(
    provider: FakeProvider, terminal: Terminal, tmp_path: Path
) -> None:
    words = ("ask", "--tool", "deploy", "--key", "job-7", "--", *script(tmp_path))
    assert terminal.run(*words).status == 0
    again = terminal.run(*words)
    assert (again.status, runs(tmp_path)) == (121, 1)
    assert "already attempted" in again.err


def test_without_a_usable_answer_the_command_does_not_run(
    provider: FakeProvider, terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(INSTANCE_TOKEN, "another")
    result = terminal.run("ask", "--tool", "deploy", "--", *script(tmp_path))
    assert (result.status, runs(tmp_path)) == (122, 0)
    assert "another" not in result.err
    monkeypatch.delenv(INSTANCE_TOKEN)
    assert terminal.run("ask", "--tool", "deploy").status == 2
    assert terminal.run("ask", "--tool", "deploy", "--", "no-such-program").status == 127
    assert terminal.run("ask", "--tool", "deploy", "--arg", "command=x", "--", "true").status == 2
    assert provider.requests == {}


def test_a_signal_while_it_waits_cancels_the_request(
    provider: FakeProvider, terminal: Terminal, tmp_path: Path
) -> None:
    def end(request: httpx.Request) -> None:
        if request.method == "GET":
            os.kill(os.getpid(), signal.SIGTERM)

    provider.intercept = end
    assert terminal.run("ask", "--tool", "deploy", "--", *script(tmp_path)).status == 130
    assert (provider.only().status, runs(tmp_path)) == ("cancelled", 0)


def test_a_signal_goes_on_to_the_command(provider: FakeProvider, terminal: Terminal) -> None:
    code = "import os, signal; os.kill(os.getppid(), signal.SIGTERM); signal.pause()"
    result = terminal.run("ask", "--tool", "deploy", "--", sys.executable, "-c", code)
    assert result.status == 128 + signal.SIGTERM
    outcome = provider.only().outcome
    assert outcome is not None
    assert outcome["status"] == "failed"


def test_a_function_is_called_after_the_approval(provider: FakeProvider) -> None:
    calls: list[tuple[str, int]] = []

    @approved(risk="high")
    def pay(account: str, amount: int = 5) -> str:
        calls.append((account, amount))
        return "paid"

    assert pay("DE1") == "paid"
    assert calls == [("DE1", 5)]
    stored = provider.only()
    assert (stored.body["tool"], stored.body["arguments"]) == (
        "pay",
        {"account": "DE1", "amount": 5},
    )
    assert stored.body["context"]["risk"] == "high"
    assert stored.outcome is not None
    assert stored.outcome["status"] == "succeeded"
    decide_at_the_first_look(provider, "denied", "Too much.")
    with pytest.raises(NotApproved, match="Too much") as refused:
        pay("DE1", 500)
    assert (refused.value.status, len(calls)) == ("denied", 1)


def test_an_asynchronous_function_reports_its_failure(provider: FakeProvider) -> None:
    @approved(risk="low", tool="mail.send")
    async def send(to: str) -> None:
        raise ConnectionError(to)

    with pytest.raises(ConnectionError):
        asyncio.run(send("ada"))
    stored = provider.only()
    assert (stored.body["tool"], stored.body["arguments"]) == ("mail.send", {"to": "ada"})
    assert stored.outcome is not None
    assert stored.outcome["status"] == "failed"
