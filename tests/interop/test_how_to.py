"""docs/how-to/approve-existing-agents.md: its blocks run on the whole application."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from config.env.environment import ROOT
from tests.docs.pages import blocks
from tests.interop.conftest import Desk, ForeignAgent, chosen

pytestmark = pytest.mark.e2e

PAGE = ROOT / "docs/how-to/approve-existing-agents.md"
BLOCKS = {
    framework.name: block.text
    for framework in chosen()
    for block in blocks(PAGE, "python")
    if f"agentapprovalprotocol.{framework.program.removesuffix('_agent')} " in block.text
}


@pytest.mark.parametrize("programs", BLOCKS, indirect=True)
def test_an_agent_of_the_page_waits_for_its_approval(desk: Desk, agent: ForeignAgent) -> None:
    plan = agent.begin(5, block=BLOCKS[agent.programs.framework.name])
    (approval,) = desk.wait(agent.name)
    desk.decide(approval, "approve")
    assert "paid 5" in agent.results()[0]
    assert plan.payments == [5]


def test_a_command_of_the_page_waits_for_its_approval(desk: Desk, tmp_path: Path) -> None:
    (line,) = [
        line
        for block in blocks(PAGE, "")
        for line in block.text.splitlines()
        if line.startswith("signoff ask")
    ]
    call = "from signoff_client.command import main; main()"
    script = f"signoff() {{ {sys.executable} -c '{call}' \"$@\"; }}\n{line}"
    pay = tmp_path / "pay.sh"
    pay.write_text("#!/bin/sh\necho paid\n")
    pay.chmod(0o755)
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT / "client"),
        "SIGNOFF_URL": desk.office.stack.url,
        "SIGNOFF_INSTANCE_TOKEN": desk.provision("A script"),
    }
    process = subprocess.Popen(
        ["sh", "-c", script], env=environment, cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    try:
        (approval,) = desk.wait("A script")
        desk.decide(approval, "approve")
        assert process.communicate()[0] == "paid\n"
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait()
