"""The command `signoff` against the served application: its output and its exit statuses."""

import json
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from signoff_client import client
from tests.client.conftest import token_of
from tests.client.terminal import Terminal
from tests.support.office import NEWCOMER, Office
from tests.support.seeds import Cast

AGENT = "hr_onboarding"


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "POLL_SECONDS", 0.01)


@pytest.fixture
def as_ada(served: str, cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIGNOFF_URL", served)
    monkeypatch.setenv("SIGNOFF_TOKEN", token_of(cast.ada))


@pytest.mark.usefixtures("as_ada")
def test_a_run_from_its_start_to_its_result(
    terminal: Terminal, cast: Cast, office: Office, tmp_path: Path
) -> None:
    words = ("start", AGENT, "--input", json.dumps(NEWCOMER), "--key", "newhire")
    run = terminal.run(*words).out.strip()
    office.advance(UUID(run))
    late = terminal.run(*words, "--wait", "--timeout", "0")
    assert (late.status, late.out) == (4, "")
    assert "suspended: waits for a person: set_privileges" in late.err
    bea = tmp_path / "token"
    bea.write_text(f"{token_of(cast.bea)}\n")
    listed = terminal.run("--token-file", bea, "list").out
    approval = listed.split()[0]
    assert "Set the privileges of newhire to 3" in listed
    shown = terminal.run("--token-file", bea, "show", approval, "--json").json
    assert shown["args"]["security_level"] == 3
    assert "status:" in terminal.run("show", run).out
    decide = ("--token-file", bea, "decide", approval, "approve")
    assert terminal.run(*decide).status == 2  # there is no terminal to confirm it
    assert terminal.run(*decide, "--digest", "sha256:other").status == 1
    decided = terminal.run(*decide, "--digest", shown["digest"])
    assert (decided.status, decided.out) == (0, "approved by bea\n")
    office.advance(UUID(run))
    result = terminal.run(*words, "--wait")
    assert (result.status, result.out) == (0, "New Hire is on board.\n")
    tail = terminal.run("tail", run, "--json").out.splitlines()
    assert [json.loads(line)["position"] for line in tail] == list(range(1, len(tail) + 1))
    assert "Completed" in terminal.run("tail", run, "--after", len(tail) - 1).out
    assert [row["id"] for row in terminal.run("list", "--runs", "--json").json] == [run]


@pytest.mark.usefixtures("as_ada")
def test_a_run_without_a_result_and_refusals_have_their_status(
    terminal: Terminal, office: Office
) -> None:
    run = office.start(key="newhire")
    words = ("start", AGENT, "--input", json.dumps(NEWCOMER), "--key", "newhire", "--wait")
    office.cancel(run, "Too early.")
    ended = terminal.run(*words)
    assert (ended.status, "cancelled: Too early." in ended.err) == (3, True)
    refused = terminal.run("start", AGENT, "--input", '{"username": 3}')
    assert (refused.status, refused.err.splitlines()[-1].startswith("signoff: input.")) == (1, True)
    assert terminal.run("start", AGENT, "--input", "{").status == 2
    assert terminal.run("show", uuid4()).status == 1
    assert terminal.run("list", TOKEN="").status == 2
    assert terminal.run("list", URL="http://signoff.example.com").status == 2


@pytest.mark.usefixtures("as_ada")
def test_hostile_texts_cannot_steer_the_terminal(terminal: Terminal, office: Office) -> None:
    run = office.start(args={"username": "\x1b[2J\u202enewhire", "security_level": 3})
    for words in (("list",), ("show", office.request(run).id)):
        result = terminal.run(*words)
        assert result.status == 0
        assert "newhire" in result.out
        assert not {"\x1b", "\u202e"} & set(result.out)


def test_every_command_has_help_and_each_shell_its_completion(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("start", "list", "show", "decide", "tail", "export", "ask"):
        result = terminal.run(name, "--help")
        assert (result.status, "Usage: signoff" in result.out) == (0, True)
        assert name in terminal.run("--help").out
    assert "120 denied" in terminal.run("--help").out
    for shell in ("bash", "zsh", "fish"):
        monkeypatch.setenv("_SIGNOFF_COMPLETE", f"source_{shell}")
        assert "_SIGNOFF_COMPLETE" in terminal.run().out
    monkeypatch.delenv("_SIGNOFF_COMPLETE")


@pytest.mark.usefixtures("as_ada")
def test_an_export_is_a_file_and_a_request_is_aais(
    terminal: Terminal, cast: Cast, office: Office, tmp_path: Path
) -> None:
    run = office.start()
    office.approve(run)
    lines = terminal.run("export", "--aais", office.request(run).id).out.splitlines()
    assert [json.loads(line)["type"] for line in lines] == [
        "approval.requested",
        "approval.decided",
        "approval.resolved",
    ]
    other = office.start(key="another")
    file = tmp_path / "run.json"
    admin = token_of(cast.admin)
    result = terminal.run("export", other, "--yes", "--output", file, TOKEN=admin)
    assert (result.status, str(other) in file.read_text()) == (0, True)
