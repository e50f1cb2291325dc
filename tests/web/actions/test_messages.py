"""Messages to the agent of a run, over the API and on its page."""

from uuid import UUID

from django.test import Client

from approvals import audit
from approvals.models import AuditEntry
from runtime.core.limits import MAX_MESSAGE, MAX_UNDELIVERED
from runtime.models import Run
from tests.support.api_client import Caller, code_of
from tests.support.office import Office
from tests.support.pages import has, shows, text_of

TEXT = "Level 3 is <b>enough</b>."
ESCAPED = "Level 3 is &lt;b&gt;enough&lt;/b&gt;."


def test_a_message_over_the_api_is_heard_at_the_next_turn(
    ada_api: Caller, office: Office, suspended: UUID
) -> None:
    answer = ada_api.post(f"/runs/{suspended}/messages", {"text": TEXT})
    assert (answer.status_code, answer.json()["unheard"]) == (202, 1)
    office.advance(suspended)
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
    assert code_of(answer) == (409, "too_many_unheard")
    assert (str(MAX_UNDELIVERED) in answer.json()["detail"], answer.json()["field"]) == (
        True,
        "text",
    )


def test_the_run_page_has_a_form_and_shows_messages(
    ada: Client, bea: Client, admin: Client, office: Office, suspended: UUID
) -> None:
    path = f"/runs/{suspended}/"
    shows(ada, suspended, "Write to the agent")
    shows(bea, suspended, hides=["Write to the agent"])
    answer = ada.post(f"{path}message/", {"text": f"{TEXT}\r\nNo more."})
    assert (answer.status_code, answer["Location"]) == (302, path)
    shows(ada, suspended, "1 message queued for the next turn")
    position = office.advance(suspended).position
    shows(ada, suspended, "queued, from <bdi>ada</bdi>", f"{ESCAPED}\nNo more.")
    shows(ada, f"{path}?tab=transcript", "message from <bdi>ada</bdi>")
    shows(admin, f"{path}at/{position}/", "MessageReceived", "Level 3 is")
    office.approve(suspended)
    hides = ["queued, from", "Write to the agent"]
    shows(ada, suspended, "delivered, from <bdi>ada</bdi>", hides=hides)
    of_root = [one.unheard for one in office.effects.models if one.frame == "0"]
    turn = of_root.index(1) + 1  # the step in which it was heard
    shows(ada, f"{path}?step=0%2Fm{turn}", "message from <bdi>ada</bdi>")
    shows(ada, f"{path}?step=0%2Fm{turn + 1}", hides=["message from"])


def test_a_refused_message_is_shown_with_the_reason(
    ada: Client, office: Office, suspended: UUID
) -> None:
    path = f"/runs/{suspended}/message/"
    long = text_of(ada.post(path, {"text": "x" * (MAX_MESSAGE + 1)}), 422)
    has(long, f"at most {MAX_MESSAGE} characters")
    office.cancel(suspended, "Not needed.")
    late = text_of(ada.post(path, {"text": TEXT}), 409)
    has(late, "Not sent: the run is cancelled already", ESCAPED)
    assert Run.objects.get(id=suspended).unheard == 0
