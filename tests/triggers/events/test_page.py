"""docs/how-to/start-runs-by-events.md: its event starts a run by its trigger, and its commands run."""

import json
import re
import shlex
import threading
from pathlib import Path

import pytest

from agents.flows.hr.onboarding import hr_onboarding
from config.env.environment import ROOT
from runtime.models import Occurrence, Run, Trigger
from runtime.store import pool
from runtime.triggers import firing
from tests.docs.pages import blocks
from tests.support import commands
from tests.support.api_client import Caller
from tests.support.seeds import Cast, published

PAGE = ROOT / "docs/how-to/start-runs-by-events.md"


@pytest.fixture
def hiring(by_hand: None, cast: Cast) -> None:
    published(input_schema=hr_onboarding.input_schema)


def test_the_event_on_the_page_starts_a_run_by_the_trigger_on_the_page(
    hiring: None, cast: Cast
) -> None:
    event, trigger = (json.loads(block.text) for block in blocks(PAGE, "json"))
    assert Caller(cast.ada).post("/triggers", trigger).status_code == 201
    assert Caller(cast.admin).post("/events", event).json()["triggers"] == 1
    with pool.open_own() as own:
        firing.fire_events(own, threading.Event())
    run = Run.objects.get()
    assert (run.business_key, json.loads(run.input)["full_name"]) == ("hire newhire", "New Hire")


def test_the_webhook_on_the_page_is_made_and_gets_the_delivery_on_the_page(
    hiring: None, cast: Cast
) -> None:
    _, trigger = (json.loads(block.text) for block in blocks(PAGE, "json"))
    api = Caller(cast.ada)
    made = api.post("/triggers", trigger).json()["id"]
    curl, _ = blocks(PAGE, "")
    hook, delivery = re.findall(r"-d '(.*)'", curl.text)
    given = api.post(f"/triggers/{made}/webhook", json.loads(hook)).json()
    token = {json.loads(hook)["header"]: given["secret"]}
    assert f"{next(iter(token))}: …" in curl.text
    path = given["path"].removeprefix("/api/v1")
    assert api.send(path, delivery, headers=token).status_code == 202
    assert Occurrence.objects.count() == 1


def test_the_commands_on_the_page_run(hiring: None, cast: Cast, tmp_path: Path) -> None:
    _, block = blocks(PAGE, "")
    for line in block.text.replace("\n    ", " ").splitlines():
        made = Trigger.objects.first()
        words = shlex.split(re.sub(r"[0-9a-f]{8}-…", str(made and made.id), line))
        assert words[:2] == ["manage.py", "triggers"]
        out, error = commands.tried(*words[1:])
        assert (error, bool(out)) == ("", True), line
    (made,) = Trigger.objects.all()
    assert (made.name, made.state) == ("Leavers", "paused")
    key = tmp_path / "key"
    key.write_text("of the other system\n")
    hook = ("--scheme", "stripe", "--secret-file", str(key))
    out, _ = commands.tried("triggers", "webhook", str(made.id), "--as", "ada", *hook)
    assert "Secret: of the other system\n" in out
    path = out.split()[1].removeprefix("/api/v1")
    assert Caller(cast.ada).post(path).status_code == 401
    out, _ = commands.tried("triggers", "show", str(made.id), "--as", "ada")
    assert "webhook\tstripe\t1 refused\tit has no time" in out
    out, _ = commands.tried("triggers", "remove-webhook", str(made.id), "--as", "ada")
    assert (out, Caller(cast.ada).post(path).status_code) == ("Done: remove-webhook\n", 404)
    for refused, why in (
        (("add", "--as", "ada", "{"), "the definition is not JSON"),
        (("add", "--as", "ada", '{"event": ""}'), "event: must have 1 to 200 characters"),
        (("pause", "7", "--as", "ada"), "'7' is not the id of a trigger"),
        (
            ("webhook", str(made.id), "--as", "ada", *hook[:2], "--secret-file", "/no"),
            "No such file",
        ),
        (("retry", str(made.id), "9", "--as", "ada"), "can be retried"),
    ):
        assert why in commands.tried("triggers", *refused)[1]
