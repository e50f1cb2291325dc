"""Messages to the agent of a run, over the API and on its page."""

from uuid import UUID

from django.test import Client

from approvals import audit
from approvals.models import AuditEntry
from runtime.core.limits import MAX_MESSAGE, MAX_UNDELIVERED
from runtime.models import Run
from tests.support.api_client import Caller
from tests.support.office import Office

TEXT = "Level 3 is <b>enough</b>."


def test_a_message_over_the_api_is_heard_at_the_next_turn(
    ada_api: Caller, office: Office, suspended: UUID
) -> None:
    answer = ada_api.post(f"/runs/{suspended}/messages", {"text": TEXT})
    assert (answer.status_code, answer.json()["unheard"]) == (202, 1)
    office.advance(suspended)
    assert ada_api.get(f"/runs/{suspended}").json()["unheard"] == 1
    assert ada_api.get("/runs").json()["items"][0]["unheard"] == 1
    assert office.approve(suspended).status == "completed"
    assert ada_api.get(f"/runs/{suspended}").json()["unheard"] == 0
    said = {"role": "message", "by": "ada", "content": TEXT}
    assert said in office.effects.models[-1].messages
    row = AuditEntry.objects.get(run=suspended, act="wrote")
    assert (row.actor, TEXT in row.detail, "sha256:" in row.detail) == ("ada", False, True)
    audit.verify(suspended)


def test_the_error_names_the_limit(ada_api: Caller, suspended: UUID) -> None:
    path = f"/runs/{suspended}/messages"
    answer = ada_api.post(path, {"text": "x" * (MAX_MESSAGE + 1)})
    assert str(MAX_MESSAGE) in answer.json()["detail"]
    for number in range(MAX_UNDELIVERED):
        assert ada_api.post(path, {"text": f"message {number}"}).status_code == 202
    answer = ada_api.post(path, {"text": TEXT})
    assert (answer.status_code, answer.json()["code"]) == (409, "too_many_unheard")
    assert (str(MAX_UNDELIVERED) in answer.json()["detail"], answer.json()["field"]) == (
        True,
        "text",
    )


# The page


def test_the_run_page_has_a_form_and_shows_messages(
    ada: Client, bea: Client, office: Office, suspended: UUID
) -> None:
    path = f"/runs/{suspended}/"
    assert "Write to the agent" in ada.get(path).content.decode()
    assert "Write to the agent" not in bea.get(path).content.decode()
    answer = ada.post(f"{path}message/", {"text": f"{TEXT}\r\nNo more."})
    assert (answer.status_code, answer["Location"]) == (302, path)
    page = ada.get(path).content.decode()
    assert "1 message queued for the next turn" in page
    office.advance(suspended)
    page = ada.get(path).content.decode()
    assert "queued, from <bdi>ada</bdi>" in page
    assert "Level 3 is &lt;b&gt;enough&lt;/b&gt;.\nNo more." in page
    transcript = ada.get(f"{path}?tab=transcript").content.decode()
    assert "message from <bdi>ada</bdi>" in transcript
    office.approve(suspended)
    page = ada.get(path).content.decode()
    assert "delivered, from <bdi>ada</bdi>" in page
    assert "queued, from" not in page
    assert "Write to the agent" not in page


def test_the_state_at_a_position_has_it(admin: Client, office: Office, suspended: UUID) -> None:
    admin.post(f"/runs/{suspended}/message/", {"text": TEXT})
    position = office.advance(suspended).position
    page = admin.get(f"/runs/{suspended}/at/{position}/").content.decode()
    assert "MessageReceived" in page
    assert "Level 3 is" in page


def test_the_step_in_which_it_was_heard_shows_it_as_given(
    ada: Client, office: Office, suspended: UUID
) -> None:
    ada.post(f"/runs/{suspended}/message/", {"text": TEXT})
    office.advance(suspended)
    office.approve(suspended)
    of_root = [one.unheard for one in office.effects.models if one.frame == "0"]
    turn = of_root.index(1) + 1
    heard = ada.get(f"/runs/{suspended}/?step=0%2Fm{turn}").content.decode()
    assert "message from <bdi>ada</bdi>" in heard
    later = ada.get(f"/runs/{suspended}/?step=0%2Fm{turn + 1}").content.decode()
    assert "message from" not in later


def test_a_refused_message_is_shown_with_the_reason(
    ada: Client, bea: Client, cyril: Client, office: Office, suspended: UUID
) -> None:
    path = f"/runs/{suspended}/message/"
    answer = ada.post(path, {"text": "x" * (MAX_MESSAGE + 1)})
    assert answer.status_code == 422
    assert f"at most {MAX_MESSAGE} characters" in answer.content.decode()
    assert bea.post(path, {"text": TEXT}).status_code == 403
    assert cyril.post(path, {"text": TEXT}).status_code == 404
    office.cancel(suspended, "Not needed.")
    answer = ada.post(path, {"text": TEXT})
    assert answer.status_code == 409
    page = answer.content.decode()
    assert "Not sent: the run is cancelled already" in page
    assert "Level 3 is &lt;b&gt;" in page
    assert Run.objects.get(id=suspended).unheard == 0
