"""docs/how-to/schedule-runs.md: its body of a request is accepted, and its commands run."""

import json
import re
import shlex
from uuid import UUID

import pytest

from agents.flows.hr.onboarding import hr_onboarding
from config.env.environment import ROOT
from runtime.models import Occurrence, Run, Trigger
from tests.docs.pages import blocks
from tests.support import commands
from tests.support.api_client import Caller
from tests.support.seeds import Cast, published

PAGE = ROOT / "docs/how-to/schedule-runs.md"


@pytest.fixture
def hiring(by_hand: None, cast: Cast) -> None:
    published(input_schema=hr_onboarding.input_schema)


def test_the_body_on_the_page_makes_a_schedule(hiring: None, cast: Cast) -> None:
    (block,) = blocks(PAGE, "json")
    made = Caller(cast.ada).post("/schedules", json.loads(block.text))
    assert made.status_code == 201
    said = made.json()
    assert (said["state"], said["owner"], len(said["next_times"])) == ("active", "ada", 5)
    assert said["next_times"][0].endswith(("T00:30:00Z", "T01:30:00Z"))  # half past two in Berlin


def test_the_commands_on_the_page_run(hiring: None) -> None:
    (block,) = blocks(PAGE, "")
    lines = block.text.replace("\\\n", "").splitlines()
    assert len(lines) == 7
    for line in lines:
        made = Trigger.objects.first()
        words = shlex.split(re.sub(r"[0-9a-f]{8}-…", str(made and made.id), line))
        assert words[:2] == ["manage.py", "schedules"]
        out, error = commands.tried(*words[1:])
        assert (error, bool(out)) == ("", True), line
    (made,) = Trigger.objects.all()
    assert (made.name, made.state) == ("Daily", "paused")
    shown, _ = commands.tried("schedules", "show", str(made.id), "--as", "ada")
    (by_hand,) = [line.split("\t") for line in shown.splitlines() if "started" in line]
    assert (by_hand[0], UUID(by_hand[3])) == ("past", Run.objects.get().id)
    assert Occurrence.objects.filter(kind="backfill").count() == 13
    assert Occurrence.objects.filter(kind="manual", state="started").count() == 1


def test_a_refused_command_says_why(hiring: None) -> None:
    add = ("schedules", "add", "--as", "ada", "--name", "x", "--agent", "hr_onboarding")
    for words, why in (
        ((*add, "--input", "{"), "--input is not JSON"),
        ((*add, "--cron", "0 0 30 2 *"), "cron: never comes: no month of 2 has a day 30"),
        (("schedules", "pause", "7", "--as", "ada"), "'7' is not the id of a schedule"),
        (("schedules", "pause", "0" * 32, "--as", "ada"), "no such schedule"),
        (
            ("schedules", "add", *add[2:], "--as", "cyril", "--cron", "0 * * * *"),
            "does not have the right",
        ),
    ):
        assert why in commands.tried(*words)[1]
