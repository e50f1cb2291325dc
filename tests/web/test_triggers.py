"""The pages of triggers: acts of people, and the answers to refused forms and wrong CloudEvents."""

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client

from runtime.models import Occurrence, Trigger, TriggerAct
from runtime.store.tables import trigger_rows
from runtime.store.tables.trigger_rows import TriggerKind
from tests.support.api_client import Caller
from tests.support.commands import tried
from tests.support.office import NEWCOMER
from tests.support.pages import has, text
from tests.support.seeds import Cast
from tests.web.test_governance import says, words

MAPPING = {name: f"{{{{data.{name}}}}}" for name in NEWCOMER}
SAID = {
    "agent": "hr_onboarding",
    "name": "New hires",
    "event": "employee.hired",
    "filter": "data.security_level < 5",
    "mapping": json.dumps(MAPPING),
    "business_key": "'hire ' + data.username",
    "debounce": "0",
    "rate_seconds": "60",
}
NEW = "/triggers/new/?agent=hr_onboarding"
HIRED = {"specversion": "1.0", "id": "h-1", "source": "/hr", "type": "employee.hired"}
CLOUD = "application/cloudevents+json"


def made(client: Client, **more: str) -> str:
    """Make a trigger on the page, and return the address of its page."""
    answer = client.post(NEW, {**SAID, **more})
    assert answer.status_code == 302, words(answer, answer.status_code)
    return str(answer["Location"])


@pytest.mark.parametrize("kind", TriggerKind)
def test_a_list_that_is_cut_says_so(
    ada: Client,
    ada_api: Caller,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kind: TriggerKind,
) -> None:
    section = f"{kind.noun}s"
    for _ in range(2):
        own = {"name": "Old", "agent": "hr_onboarding", "owner": "ada"}
        for each in TriggerKind:
            Trigger.objects.create(id=uuid4(), kind=each, **own)
    for most, said in ((2, ""), (1, f"Only 1 {section} are listed.")):
        monkeypatch.setattr(trigger_rows, "MAX_LISTED", most)
        page = text(ada, f"/{section}/")
        assert ("are listed." in page, said in page) == (bool(said), True)
        found = ada_api.get(f"/{section}").json()
        assert (len(found["items"]), found["cut"]) == (most, bool(said))
        capsys.readouterr()
        tried(section, "list", "--as", "ada")
        assert capsys.readouterr().err.strip() == said


def test_acts_of_people_on_the_page(
    ada: Client, admin: Client, admin_api: Caller, published: None
) -> None:
    form = str(uuid4())
    place = made(ada, form=form)
    assert made(ada, form=form) == place  # a form that is sent twice
    admin_api.post("/events", {"id": "h-2", "name": "employee.hired", "data": {}})
    Occurrence.objects.update(state="failed", reason="filter: there is no security_level")
    says(ada, place, "h-2", "not started", "there is no security_level", "Retry")
    tried = ada.post(f"{place}change/", {**SAID, "try": "1"})
    has(words(tried), "h-2", "does not fit")
    number = Occurrence.objects.get().number
    has(words(admin.post(f"{place}events/{number}/retry/", follow=True)), "new", "retried h-2 by")
    has(words(ada.post(f"{place}events/{number}/retry/"), 409), "Nothing was changed")
    has(words(admin.post(f"{place}pause/", follow=True)), "paused", "paused by admin")
    has(words(ada.post(f"{place}resume/", follow=True)), "active", "resumed by ada")
    changed = ada.post(f"{place}change/", {**SAID, "name": "Other", "at_once": "3"}, follow=True)
    has(words(changed), "Other", "changed by ada", "Runs at once3")
    says(ada, f"{place}change/", "Save the changes", "Try")
    Trigger.objects.update(problem="the trigger does not verify")
    says(ada, place, "It starts nothing", "the trigger does not verify", "problem")
    has(words(ada.post(f"{place}change/", SAID, follow=True)), hides=("It starts nothing",))
    assert f'href="{NEW}">Trigger…' in ada.get("/agents/hr_onboarding/").content.decode()
    waking = {**SAID, "wakes": "only"}
    has(words(ada.post(f"{place}change/", waking), 403), "does not have the right events:send")
    hook = ada.post(f"{place}webhook/", {"scheme": "header", "header": "X-Token"})
    has(
        words(hook),
        "Copy the address and the secret now",
        "http://testserver/api/v1/hooks/",
        "webhook made by ada",
    )
    assert '<option value="stripe">Stripe' in hook.content.decode()
    says(ada, place, "in X-Token", "No delivery was refused", hides=("/api/v1/hooks/",))
    wrong = ada.post(f"{place}webhook/", {"scheme": "github", "secret": "short"})
    has(words(wrong, 422), "The field “secret” must be text of 16 to 200 characters")
    has(words(ada.post(f"{place}webhook/remove/", follow=True)), "The webhook is removed.")
    has(words(ada.post(f"{place}end/", follow=True)), "ended", hides=("Pause", "Retry"))
    has(words(ada.post(f"{place}pause/"), 409), "The trigger has ended.")
    TriggerAct.objects.update(act="paused")
    says(ada, place, "This trigger cannot be shown", "does not verify", hides=("Pause",))
    says(ada, f"{place}change/", "does not verify")
    has(words(ada.post(f"{place}end/")), "does not verify")
    has(words(ada.get("/triggers/new/?agent=gone"), 404), "There is no agent named gone.")


def test_a_sample_is_tried_before_the_trigger_is_saved(ada: Client, published: None) -> None:
    for change, said in (
        ({"security_level": 5}, ["The filter does not hold"]),
        ({"username": 7}, ["does not fit"]),
        ({}, ["starts a run", f"business key hire {NEWCOMER['username']}"]),
    ):
        sample = json.dumps({**NEWCOMER, **change})
        tried = words(ada.post(NEW, {**SAID, "try": "1", "sample": sample}))
        has(tried, "Trial of 1 event", *said)
    assert not Trigger.objects.exists()


def test_a_paused_trigger_says_what_stays_at_its_source(
    ada: Client, published: None, settings: Any, tmp_path: Path
) -> None:
    settings.SIGNOFF_WATCHED_FOLDERS = (tmp_path,)
    place = made(ada, folder=str(tmp_path))
    paused = words(ada.post(f"{place}pause/", follow=True))
    has(paused, "Files stay there until the trigger is resumed.")


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ({"filter": "data.a.all(x, data.b.all(y, x == y))"}, "Filter has 2 quantifiers"),
        ({"mapping": '{"username": "x"}'}, "Input of each run full_name: is missing"),
        ({"mapping": "{"}, "Input of each run must be JSON"),
        ({"at_once": "many"}, "Runs at once must be a whole number."),
        ({"folder": "/etc"}, "Folder is not allowed: SIGNOFF_WATCHED_FOLDERS names none."),
        ({"name": ""}, "Name must have 1 to 100 characters."),
        ({"try": "1", "sample": "[]"}, "Sample event to try must be an object."),
    ],
)
def test_a_refused_form_names_the_field_and_keeps_the_rest(
    ada: Client, published: None, sent: dict[str, Any], said: str
) -> None:
    answer = ada.post(NEW, {**SAID, "key": "data.kept", **sent})
    has(words(answer, 422), said, "Nothing was saved")
    body = answer.content.decode()
    assert "data.kept" in body
    assert 'aria-invalid="true"' in body
    assert not Trigger.objects.exists()


def test_cloud_events_in_both_modes_are_the_same_event(admin_api: Caller) -> None:
    data = {"contract": "C-1"}
    sent = admin_api.post("/events", {**HIRED, "data": data}, content_type=CLOUD)
    assert (sent.status_code, sent.json()["name"]) == (201, "employee.hired")
    headers = {f"ce-{name}": value for name, value in HIRED.items()}
    again = admin_api.post("/events", data, headers=headers)
    assert (again.status_code, again.json()["source"]) == (200, "/hr")
    other = admin_api.post("/events", {}, headers={**headers, "ce-id": "h%20%C3%A9"})
    assert (other.status_code, other.json()["id"]) == (201, "h é")
    empty = admin_api.send("/events", "", headers={**headers, "ce-id": "h-2"})
    assert (empty.status_code, empty.json()["id"]) == (201, "h-2")
    none = admin_api.send("/events", "")
    assert (none.status_code, none.json()["field"]) == (422, "body")


@pytest.mark.parametrize(
    ("change", "kind", "field"),
    [
        ({"specversion": "0.3"}, CLOUD, "specversion"),
        ({"id": ""}, CLOUD, "id"),
        ({"source": None}, CLOUD, "source"),
        ({"type": 7}, CLOUD, "type"),
        ({"type": "x" * 201}, CLOUD, "type"),
        ({"data_base64": "AA=="}, CLOUD, "data_base64"),
        ({"data": []}, CLOUD, "data"),
        ({}, "application/cloudevents-batch+json", "content-type"),
    ],
)
def test_a_wrong_cloud_event_names_its_attribute(
    admin_api: Caller, cast: Cast, change: dict[str, Any], kind: str, field: str
) -> None:
    refused = admin_api.post("/events", {**HIRED, **change}, content_type=kind)
    assert (refused.status_code, refused.json()["field"]) == (422, field)
