"""The whole application with a provider's model behind it, in a process of its own, that fails at first."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from config.env.environment import ROOT
from tests.support.people import Office
from tests.support.provider.faults import Fault
from tests.support.provider.server import KEY
from tests.support.stack import Stack

pytestmark = pytest.mark.e2e

NAME = "provided"  # not a person of the demonstration
FAULTS = [Fault.RATE_LIMIT, Fault.SERVER_ERROR, Fault.CUT, Fault.DUPLICATE_CALLS]


@pytest.fixture
def provider() -> Iterator[str]:
    """The base URL of a provider that makes each mistake once."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.provider", ",".join(FAULTS), NAME],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        happened, _ = process.communicate("", timeout=30)
        assert happened.strip() == ",".join(FAULTS)


def test_a_provider_onboarding_has_one_account_role_and_mail(provider: str, sandbox: Path) -> None:
    with Stack(
        sandbox / "provider",
        ABEYANCE_MODEL="openai:loopback",
        OPENAI_BASE_URL=provider,
        OPENAI_API_KEY=KEY,
    ) as stack:
        office = Office(stack)
        run = office.start("hr_onboarding", NAME, level=4)
        office.wait(run, "suspended")
        assert (office.roles(NAME), office.mails(NAME)) == ([], 0)
        assert office.decide("bea", office.approval(run), "approve")[0] == 200
        done = office.wait(run, "completed")
        assert "security level 4" in done["output"]
        assert office.roles(NAME) == ["security-level-4"]
        assert (len(office.accounts(NAME)), office.mails(NAME)) == (1, 1)
        retries = [event for event in office.events(run) if event["type"] == "RetryScheduled"]
        errors = [retry for retry in retries if retry["cause"] != "brake"]
        assert [retry["call"] for retry in errors] == [None, None, None]
