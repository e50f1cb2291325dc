"""A model call that the rate limit of its provider puts off: on the pages and in the API."""

from datetime import datetime, timedelta
from uuid import UUID

from django.test import Client
from django.utils import timezone

from runtime.core.values.enums import FailureCause
from runtime.models import Run
from runtime.ports.effects import ModelFailure, Outcome, RateLimited
from tests.support.api_client import Caller
from tests.support.engine import pause
from tests.support.fake_ports import say
from tests.support.office import Office
from tests.support.pages import shows

MODEL = "openai:<a>"
SHOWN = "openai:&lt;a&gt;"
CALL = {"frame": "0", "agent": "hr_onboarding", "model": MODEL}


def _limited(office: Office, *outcomes: Outcome) -> UUID:
    """A run whose model gives these outcomes and then answers, up to its first wait."""
    left = [*outcomes, say("done")]
    office.effects.agents["hr_onboarding"] = lambda request: left.pop(0)
    return office.start()


def _refused(retry_after: float) -> ModelFailure:
    return ModelFailure(
        error="busy", retryable=True, retry_after=retry_after, cause=FailureCause.LIMIT, model=MODEL
    )


def test_a_wait_for_a_rate_limit_is_shown_with_its_model_time_and_tries(
    office: Office, ada: Client, admin: Client, ada_api: Caller
) -> None:
    at = timezone.now().replace(microsecond=0) + timedelta(minutes=5)
    run = _limited(office, _refused(0.0), RateLimited(model=MODEL, until=at, queue_number=4))
    found = ada_api.get(f"/runs/{run}").json()
    (wait,) = found["rate_limits"]
    assert {**wait, **CALL, "tries": 2} == wait
    assert datetime.fromisoformat(wait["until"]) == at
    assert found["status_text"].startswith(f"{MODEL} waits for the rate limit of its provider")
    assert ada_api.get("/runs").json()["items"][0]["rate_limits"] == [wait]
    shows(ada, run, "Waits for a rate limit", SHOWN, "2 times", hides=["of its model</h2>"])
    shows(ada, "/runs/", f"{SHOWN}</bdi> waits for the rate limit", "put off 2 times")
    shows(admin, "/overview/", "Waiting for a rate limit", SHOWN, "1 call waits")
    pause(run)
    office.advance(run)
    assert ada_api.get(f"/runs/{run}").json()["rate_limits"] == []
    shows(admin, "/overview/", hides=[SHOWN])


def test_a_refused_request_is_one_try_and_a_reply_ends_the_wait(
    office: Office, ada_api: Caller
) -> None:
    run = _limited(office, _refused(30.0))
    assert [one["tries"] for one in ada_api.get(f"/runs/{run}").json()["rate_limits"]] == [1]
    run = _limited(office, _refused(0.0))
    found = ada_api.get(f"/runs/{run}").json()
    assert (found["status"], found["rate_limits"]) == ("completed", [])
    assert Run.objects.get(id=run).limited is None
