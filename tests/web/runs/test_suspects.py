"""A run that lost two workers in a row and waits to be tried: on the pages, in the API and in the metrics."""

from datetime import timedelta
from uuid import uuid4

from django.test import Client
from django.utils import timezone

from runtime.models import LostLease, Run
from tests.config.test_metrics import families, value
from tests.support.api_client import Caller
from tests.support.office import Office
from tests.support.pages import shows

AFTER = "after two workers in a row died or lost it"


def test_a_suspected_run_says_its_number_in_the_queue(
    office: Office, ada: Client, admin: Client, ada_api: Caller
) -> None:
    first, second, tried, ordinary = (office.start() for _ in range(4))
    for seconds, run in enumerate((first, second, tried)):
        due = timezone.now() + timedelta(seconds=seconds)
        Run.objects.filter(id=run).update(status="running", isolated=True, due_at=due)
    Run.objects.filter(id=tried).update(owner=uuid4())
    texts = {run["id"]: run["status_text"] for run in ada_api.get("/runs").json()["items"]}
    assert texts == {
        str(first): f"waits to be tried in another process, {AFTER}: number 1 of 2",
        str(second): f"waits to be tried in another process, {AFTER}: number 2 of 2",
        str(tried): f"is tried in another process, {AFTER}",
        str(ordinary): None,
    }
    assert ada_api.get(f"/runs/{second}").json()["status_text"] == texts[str(second)]
    shows(ada, second, "Waits to be tried, number 2 of 2")
    shows(ada, tried, "Is being tried in another process")
    shows(ada, ordinary, hides=["to be tried", "being tried"])
    shows(ada, "/runs/", f"{AFTER}: number 1 of 2")
    shows(admin, "/overview/", "</span> wait to be tried", "</span> is being tried")
    measures = families()
    assert value(measures, "runs_suspected", state="waiting") == 2
    assert value(measures, "runs_suspected", state="tried") == 1


def test_a_quarantined_run_is_not_counted_as_suspected(office: Office, admin: Client) -> None:
    """Its page says with how many others it was in each process that it lost."""
    run, worker = office.start(), uuid4()
    Run.objects.filter(id=run).update(status="quarantined", isolated=True, losses=5, reason="died")
    for lost, process in ((run, worker), (uuid4(), worker), (uuid4(), worker), (run, uuid4())):
        LostLease.objects.create(run_id=lost, worker=process, position=1, isolated=False)
    page = shows(admin, run, "with 2 other runs", "alone in its process", hides=["being tried"])
    assert page.index("with 2 other runs") < page.index("alone in its process")
    shows(admin, "/overview/", hides=["to be tried"])
    Run.objects.filter(id=run).update(losses=4, reason="its journal does not verify")
    shows(admin, run, hides=["with 2 other runs"])
