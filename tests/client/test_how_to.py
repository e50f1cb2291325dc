"""docs/how-to/use-from-scripts.md: its blocks run on the whole application."""

import json
import os
import pty
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx2
import pytest

from config.env.environment import ROOT
from config.local.app_environment import HR
from tests.docs.pages import README, blocks
from tests.support.people import Office, until
from tests.support.stack import Stack

pytestmark = pytest.mark.e2e

PAGE = ROOT / "docs/how-to/use-from-scripts.md"
RESULT = "Order A-1: 40 euros are on their way"


@pytest.fixture(scope="module")
def office(sandbox: Path) -> Iterator[Office]:
    """The application with the agent of the README."""
    folder = sandbox / "scripted"
    folder.mkdir(mode=0o755)
    (block,) = blocks(README, "python")
    (folder / "refunds.py").write_text(block.text, encoding="utf-8")
    modules = f"{HR},refunds"
    with Stack(sandbox / "client", AGENTS_DIR=str(folder), SIGNOFF_AGENTS=modules) as stack:
        yield Office(stack)


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with the programs that the blocks call."""
    signoff = tmp_path / "signoff"
    code = "from signoff_client.command import main; main()"
    signoff.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{code}" "$@"\n')
    deploy = tmp_path / "deploy.sh"
    deploy.write_text("#!/bin/sh\necho deployed\n")
    for program in (signoff, deploy):
        program.chmod(0o755)
    return tmp_path


def _start(
    office: Office,
    programs: Path,
    person: str,
    words: Sequence[str],
    stdin: int = subprocess.DEVNULL,
    **variables: str,
) -> subprocess.Popen[str]:
    """Start a program with the variables that the page names."""
    known = office.stack.credentials
    environment = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "client"),
        "SIGNOFF_URL": known["url"],
        "SIGNOFF_TOKEN": known["users"][person]["token"],
        **variables,
    }
    return subprocess.Popen(
        words, env=environment, cwd=programs, stdin=stdin, stdout=subprocess.PIPE, text=True
    )


def _command(start: str) -> str:
    """The line of the page that begins so."""
    lines = [line for block in blocks(PAGE, "") for line in block.text.splitlines()]
    (line,) = [line for line in lines if line.startswith(start)]
    return line


def _new_request(office: Office) -> tuple[str, str | None]:
    """The request of the page, once it waits, and the name that its approval repeats."""

    def read() -> tuple[str, str | None] | None:
        _, page = office.stack.ask("bea", "GET", "/api/v1/approvals?status=pending")
        ours = [item for item in page["items"] if item["tool"] in ("pay_back", "external_call")]
        return (ours[0]["id"], ours[0]["confirm"]) if ours else None

    return until(read, "a request")


def _approve(office: Office, programs: Path, sentence: str) -> None:
    """As the page says, at a terminal."""
    request, name = _new_request(office)
    listed = _start(office, programs, "bea", ["sh", "-c", _command("signoff list")])
    assert request in listed.communicate()[0]
    ours, theirs = pty.openpty()
    words = ["sh", "-c", _command("signoff decide")]
    decide = _start(office, programs, "bea", words, theirs, REQUEST=request)
    os.close(theirs)
    os.write(ours, f"{name or 'y'}\n".encode())
    out, _ = decide.communicate()
    os.close(ours)
    assert decide.returncode == 0
    assert sentence in out
    assert out.endswith("approved by bea\n")


def test_a_program_and_a_command_wait_for_a_run(office: Office, programs: Path) -> None:
    program = blocks(PAGE, "python")[0].text
    assert len([line for line in program.splitlines() if line]) <= 6
    for words in ([sys.executable, "-c", program], ["sh", "-c", _command("signoff start")]):
        process = _start(office, programs, "ada", words)
        _approve(office, programs, "Pay 40 euros back for order A-1")
        assert (process.communicate()[0], process.returncode) == (f"{RESULT}\n", 0)


def test_a_command_and_a_function_wait_for_an_approval(office: Office, programs: Path) -> None:
    (text,) = [block.text for block in blocks(PAGE, "") if block.text.startswith("curl")]
    _, _, authorization, _, key, address, _, body = shlex.split(text.replace("\\\n", ""))
    known = office.stack.credentials
    token = known["users"]["admin"]["token"]
    headers = dict(line.split(": ") for line in (authorization.replace("$TOKEN", token), key))
    answer = httpx2.post(
        address.replace("$SIGNOFF_URL", known["url"]), headers=headers, json=json.loads(body)
    )
    credential = answer.json()["credential"]["token"]
    program = blocks(PAGE, "python")[1].text
    for words, output in (
        (["sh", "-c", _command("signoff ask")], "deployed\n"),
        ([sys.executable, "-c", program], "deployed 1.4.2\n"),
    ):
        process = _start(office, programs, "ada", words, SIGNOFF_INSTANCE_TOKEN=credential)
        _approve(office, programs, "deploy")
        assert (process.communicate()[0], process.returncode) == (output, 0)
