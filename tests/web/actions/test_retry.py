"""Retry of a failed run, over the API, on its page and by command."""

from io import StringIO
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from approvals import audit
from approvals.models import AuditEntry
from runtime.models import Run
from runtime.ports.effects import ModelFailure
from tests.support.api_client import Caller, code_of
from tests.support.fake_ports import ask, say, turns
from tests.support.office import NEWCOMER, Office
from tests.support.pages import has, shows, text_of

WHY = {"reason": "The model is mended."}


@pytest.fixture
def failed(office: Office) -> UUID:
    """A run of Ada's that failed after Bea had approved a call; its model works again."""
    delegation = ask(("account_agent", NEWCOMER))
    office.effects.agents["hr_onboarding"] = turns(delegation, ModelFailure(error="<no>"))
    run = office.start()
    assert office.approve(run).status == "failed"
    office.effects.agents["hr_onboarding"] = turns(delegation, say("done"))
    return run


def test_a_failed_run_is_tried_again_over_the_api(
    ada_api: Caller, office: Office, failed: UUID
) -> None:
    calls = len(office.effects.calls)
    answer = ada_api.post(f"/runs/{failed}/retry", WHY)
    assert (answer.status_code, answer.json()["ended_at"]) == (200, None)
    assert office.advance(failed).status == "completed"
    assert len(office.effects.calls) == calls
    rows = AuditEntry.objects.filter(run=failed, subject=f"run {failed}")
    assert [(row.act, row.actor) for row in rows] == [("retried", "ada")]
    audit.verify(failed)
    answer = ada_api.post(f"/runs/{failed}/retry", WHY)
    assert code_of(answer) == (409, "not_failed")
    assert "completed: only a failed run" in answer.json()["detail"]


def test_the_page_asks_for_a_confirmation(
    ada: Client, bea: Client, office: Office, failed: UUID
) -> None:
    path = f"/runs/{failed}/retry/"
    shows(bea, failed, hides=["/retry/"])
    shows(bea, path, "may try it again.")
    shows(ada, failed, f'href="{path}"')
    shows(ada, path, "&lt;no&gt;", "set_privileges")
    assert Run.objects.get(id=failed).status == "failed"
    assert ada.post(path, {"reason": ""}).status_code == 422
    assert ada.post(path, WHY).status_code == 302
    shows(ada, failed, hides=[f'href="{path}"'])
    assert office.advance(failed).status == "completed"
    has(text_of(ada.post(path, WHY), 409), "This run cannot be tried again")


def test_the_command_tries_it_again(office: Office, failed: UUID) -> None:
    said = StringIO()
    given = {"name": "ada", "reason": "mended"}
    call_command("retry_run", failed, stdout=said, **given)
    assert f"Run {failed} is tried again." in said.getvalue()
    assert office.advance(failed).status == "completed"
    with pytest.raises(CommandError, match="only a failed run"):
        call_command("retry_run", failed, **given)
    with pytest.raises(CommandError, match="may not retry"):
        call_command("retry_run", failed, name="bea", reason="mended")
