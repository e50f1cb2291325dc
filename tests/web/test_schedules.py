"""The pages of schedules: from the form to the run that the sweeper starts, and the answers to refused forms."""

import threading
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client
from django.utils import timezone

from runtime.models import Occurrence, Run, Trigger, TriggerAct
from runtime.web.pages import trigger_forms
from tests.support.api_client import Caller, field_of
from tests.support.office import NEWCOMER, Office
from tests.support.pages import has
from tests.support.people import until
from tests.support.seeds import Cast
from tests.support.seeds import published as publish
from tests.upkeep.test_sweeper import room, sweeping
from tests.web.test_governance import says, words

__all__ = ["room"]  # a fixture

SAID = {
    "name": "Every hour",
    "every": "1",
    "unit": "hours",
    "zone": "Europe/Berlin",
    "missed": "once",
    "overlap": "skip",
    "jitter": "0",
    "thread": "talk",
    "agent": "hr_onboarding",
    **{f"in.{name}": str(value) for name, value in NEWCOMER.items()},
}
NEW = "/schedules/new/?agent=hr_onboarding"


def made(client: Client, **more: str) -> str:
    """Make a schedule on the page, and return the address of its page."""
    answer = client.post(NEW, {**SAID, **more})
    assert answer.status_code == 302, words(answer, answer.status_code)
    return str(answer["Location"])


@pytest.mark.django_db(transaction=True)
def test_a_schedule_from_the_form_to_the_run_in_its_history(
    ada: Client, office: Office, published: None, room: None
) -> None:
    says(ada, "/schedules/", "No schedules yet", "New schedule…")
    says(ada, "/schedules/new/", "Which agent", "Hr onboarding")
    ada.cookies["signoff_zone"] = "America/Lima"
    assert 'name="zone" value="America/Lima"' in ada.get(NEW).content.decode()
    says(ada, NEW, "Schedule Hr onboarding", "username", "Cron expression", "Time zone")
    soon = (timezone.now() + timedelta(seconds=1)).replace(microsecond=0)
    place = made(ada, zone="UTC", starts_at=soon.replace(tzinfo=None).isoformat())
    says(
        ada, place, "Every hour", "every hour", "No time has come yet", "Next times", "made by ada"
    )
    with sweeping(threading.Event()):
        until(lambda: Occurrence.objects.filter(state="started").exists() or None, "its time")
    run = Run.objects.get()
    page = ada.get(place).content.decode()
    assert f'href="/runs/{run.id}/"' in page
    says(ada, place, "Queued", "Run now", hides=("Last failure",))
    says(ada, f"/runs/{run.id}/", "newhire", "ScheduleEvery hour")
    office.advance(run.id)
    office.cancel(run.id, "Enough.")
    says(ada, place, "Cancelled")
    Run.objects.update(status="failed")
    says(ada, place, "Last failure", "the run failed")
    says(ada, "/schedules/", "Every hour", "active", "Hr onboarding")


def test_acts_of_people_on_the_page(
    ada: Client, admin: Client, office: Office, published: None
) -> None:
    says(ada, made(ada, every="", cron="0 12 * * *"), "0 12 * * *", "12:00:00 CE")
    form = str(uuid4())
    place = made(ada, form=form)
    assert made(ada, form=form) == place  # a form that is sent twice
    at = timezone.now().isoformat()
    for _ in range(2):
        has(words(ada.post(f"{place}run-now/", {"at": at}, follow=True)), "A run was started.")
    assert Run.objects.count() == 1
    now, more = timezone.now().replace(microsecond=0, tzinfo=None), timedelta(minutes=1)
    day = {
        "first": (now - timedelta(hours=9) - more).isoformat(),
        "until": (now - timedelta(hours=6) + more).isoformat(),
    }
    has(
        words(ada.post(f"{place}backfill/", day, follow=True)),
        "back-filled by ada",
        "waits for its turn",
    )
    says(ada, place, "4 times from 20", hides=("+00:00",))
    paused = words(admin.post(f"{place}pause/", follow=True))
    has(paused, "paused", "None while it is paused", "waits until it is resumed")
    has(words(ada.post(f"{place}resume/", follow=True)), "active", "resumed by ada")
    wrong = ada.post(f"{place}backfill/", {**day, "until": "2999-01-01T00:00"})
    has(words(wrong, 422), "must be between 2000 and 2200", "Nothing was changed")
    assert day["first"] in wrong.content.decode()
    changed = ada.post(f"{place}change/", {**SAID, "name": "Other name"}, follow=True)
    has(words(changed), "Other name", "changed by ada")
    says(ada, f"{place}change/", "Save the changes")
    has(words(ada.post(f"{place}end/", follow=True)), "ended", "It has ended.", hides=("Run now",))
    has(words(ada.post(f"{place}run-now/"), 409), "The schedule has ended.")


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (
            {"every": "", "cron": "0 0 30 2 *"},
            "Cron expression never comes: no month of 2 has a day 30.",
        ),
        ({"zone": "Mars"}, "Time zone must be a time zone such as Europe/Berlin."),
        ({"zone": "localtime"}, "Time zone must be a time zone such as Europe/Berlin."),
        (
            {"starts_at": "2030-01-02T00:00", "ends_at": "2030-01-01T00:00"},
            "End must be after the start.",
        ),
        ({"every": "x"}, "Or every must be a whole number."),
        ({"name": ""}, "Name must have 1 to 100 characters."),
        ({"in.security_level": "high"}, "security_level must be a whole number."),
        ({"in.username": ""}, "username is missing: it must be string"),
        ({"in.username": "", "in.security_level": ""}, "username is missing: it must be string"),
    ],
)
def test_a_refused_form_names_the_field_and_keeps_the_rest(
    ada: Client, published: None, sent: dict[str, Any], said: str
) -> None:
    answer = ada.post(NEW, {**SAID, **sent, "in.full_name": "Kept <b>text</b>"})
    has(words(answer, 422), said, "Nothing was saved")
    body = answer.content.decode()
    assert "Kept &lt;b&gt;text&lt;/b&gt;" in body
    assert 'aria-invalid="true"' in body
    assert not Trigger.objects.exists()


def test_an_input_without_fields_is_required(ada: Client, cast: Cast) -> None:
    publish(input_schema={})
    for unreadable in ("[", ""):
        refused = ada.post(NEW, {**SAID, "input": unreadable})
        has(words(refused, 422), "Input (JSON) must be JSON.")
    made(ada, input="null")


def test_an_agent_that_is_gone_and_a_row_that_does_not_verify(ada: Client, published: None) -> None:
    has(words(ada.get("/schedules/new/?agent=gone"), 404), "There is no agent named gone.")
    place = made(ada)
    TriggerAct.objects.update(act="paused")
    says(ada, place, "This schedule cannot be shown", "does not verify", hides=("Run now",))
    says(ada, f"{place}change/", "does not verify")
    has(words(ada.post(f"{place}end/")), "does not verify")


@pytest.mark.django_db(transaction=True)
def test_a_schedule_runs_now_without_a_body(
    ada: Client, ada_api: Caller, office: Office, published: None
) -> None:
    place = made(ada)
    assert ada_api.send(f"{place}run-now", "").status_code == 200
    for before, count in (
        ("2999-01-01T00:00:00", 1),
        ("2999-01-01T00:00:00Z", 1),
        ("2000-01-01", 0),
    ):
        view = ada_api.get(f"{place.rstrip('/')}?before={before}").json()
        assert len(view["history"]) == count, before
    assert field_of(ada_api.post(f"{place}run-now", {"when": "now"})) == (422, "when")


@pytest.mark.django_db
def test_a_rhythm_is_chosen_and_its_next_times_are_shown_before_it_is_saved(
    ada: Client, office: Office, published: None
) -> None:
    rhythm = {"every": "", "zone": "UTC", "rhythm": "weekly", "time": "09:30", "weekday": "TUE"}
    tried = ada.post(NEW, {**SAID, **rhythm, "try": "1"})
    page = words(tried, 200)
    assert page.count("Tuesday") == 5 + 1  # and the choice
    assert "Nothing is saved yet" in page
    assert not Trigger.objects.exists()
    place = made(ada, **rhythm)
    says(ada, place, "30 9 * * TUE")
    form = ada.get(f"{place}change/").content.decode()
    assert '<option value="weekly" selected>' in form
    assert 'value="09:30"' in form
    assert '<option value="TUE" selected>' in form


@pytest.mark.django_db
def test_each_rhythm_is_read_back_as_it_was_written() -> None:
    for rhythm, pattern in trigger_forms.RHYTHMS.items():
        cron = pattern.format(minute=5, hour=7, weekday="SUN", month_day=31)
        texts = trigger_forms.read_rhythm(cron)
        assert (texts["rhythm"], texts["time"], texts["cron"]) == (rhythm, "07:05", "")
    for cron in ("*/5 * * * *", "5 7 * * 1", "5 7 L * *", "5 7 * * FOO", "05 7 * * *", ""):
        assert trigger_forms.read_rhythm(cron) == {}


@pytest.mark.django_db
def test_a_rhythm_that_contradicts_or_lacks_a_field_is_refused(
    ada: Client, office: Office, published: None
) -> None:
    for sent, problem in (
        ({"rhythm": "daily", "time": "09:30"}, "leave the cron expression and the interval empty"),
        ({"rhythm": "daily", "time": "", "every": ""}, "must be a time such as 09:30"),
        ({"rhythm": "monthly", "time": "09:30", "every": ""}, "must be a day of the month"),
    ):
        answer = ada.post(NEW, {**SAID, **sent})
        assert problem in words(answer, 422)
