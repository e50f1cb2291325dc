"""What people do with a run: cancel, pause, write, retry, release, fork, export; on pages, over the API, by command."""

import json
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from pytest_django import Settings

from approvals.models import Approval, AuditEntry
from approvals.signed import audit
from runtime.core.values.limits import MAX_MESSAGE
from runtime.models import JournalEntry, Run, Signal
from runtime.store.leases import ALONE
from tests.support.api_client import Caller, code_of, field_of
from tests.support.engine import body
from tests.support.fake_ports import ask, say, turns
from tests.support.forged_exports import Sender
from tests.support.office import NEWCOMER, Office
from tests.support.pages import has, in_order, send, shows, text, text_of

WHY = {"reason": "New Hire does not come."}
TEXTS = {  # the field, whether it may be empty, and its longest text
    "cancel": ("reason", False, 2000),
    "pause": ("reason", True, 2000),
    "resume": ("reason", True, 2000),
    "messages": ("text", False, MAX_MESSAGE),
    "retry": ("reason", False, 2000),
}


@pytest.mark.parametrize("action", TEXTS)
def test_a_text_is_clean_and_of_a_stated_length(
    action: str, office: Office, ada_api: Caller, subtests: pytest.Subtests
) -> None:
    run = office.failed() if action == "retry" else office.start()
    field, may_be_empty, longest = TEXTS[action]
    before = (Run.objects.get(id=run).status, Signal.objects.filter(run=run).count())
    empty = [] if may_be_empty else [None, "", "  \n"]
    for value in (*empty, 7, ["no"], "x" * (longest + 1), "nul\x00", "\ud800"):
        with subtests.test(repr(value)[:40]):
            assert field_of(ada_api.post(f"/runs/{run}/{action}", {field: value})) == (422, field)
    assert (Run.objects.get(id=run).status, Signal.objects.filter(run=run).count()) == before


# Cancelling


def test_a_cancelled_run_ends(ada: Client, bea: Client, office: Office, suspended: UUID) -> None:
    path = f"/runs/{suspended}/cancel/"
    calls = ("<bdi>Create account</bdi>", "Cancelled with the run", ">Set privileges</bdi>")
    page = text(ada, path)
    in_order(page.partition("will not be undone")[2], *calls)
    shows(bea, path, "You may not cancel this run")
    has(text_of(ada.post(path, {"reason": " "}), 422), "Not cancelled: the reason is required")
    for _ in range(2):  # twice is once
        answer = ada.post(path, {"reason": "Not\r\nneeded."})
        assert (answer.status_code, answer["Location"]) == (302, f"/runs/{suspended}/")
    assert Signal.objects.filter(run=suspended, kind="cancel").count() == 1
    audit.verify(suspended)
    act = AuditEntry.objects.get(run=suspended, subject=f"run {suspended}")
    assert (act.act, act.actor) == ("cancelled", "ada")
    shows(ada, suspended, "Being cancelled", hides=["Cancel…"])
    approval = office.request(suspended)
    ended = ("Cancelled by <bdi>ada</bdi>", "Not\nneeded.")
    shows(bea, approval, *ended, hides=["/approve/"])
    page = text_of(send(bea, approval, "deny", reason="my own words"), 409)
    has(page, "The run was ended first", "my own words")
    assert Approval.objects.get(id=approval.id).status == "cancelled"
    assert office.advance(suspended).status == "cancelled"
    shows(ada, suspended, *ended, "not started: the run was ended first")
    assert ada.post(path, WHY)["Location"] == f"/runs/{suspended}/"  # a late second click
    assert office.started(suspended) == 0


def test_the_cancel_page_says_what_has_happened(ada: Client, office: Office) -> None:
    path = f"/runs/{office.in_doubt()}/cancel/"
    shows(ada, path, "in doubt: started, outcome unknown", "Stays in doubt")
    office.effects.agents["hr_onboarding"] = office.effects.agents["account_agent"]
    del office.effects.tools["create_account"]
    path = f"/runs/{office.start()}/cancel/"
    shows(ada, path, "Nothing was changed.")


def test_the_cancel_page_names_the_request_that_ends(ada: Client, suspended: UUID) -> None:
    sentence = Approval.objects.get(run=suspended).sentence
    shows(ada, f"/runs/{suspended}/cancel/", f"Not asked any more: <b><bdi>{sentence}</bdi>")


def test_late_acts_are_told_why(ada: Client, bea: Client, office: Office, suspended: UUID) -> None:
    approval = office.request(suspended)
    send(bea, approval, "approve")
    path = f"/runs/{suspended}/cancel/"
    ada.post(path, WHY)
    assert office.advance(suspended).status == "cancelled"
    assert office.started(suspended) == 0
    ended = "The run was ended before this took effect"
    shows(bea, approval, ended, hides=["The call may start once"])
    other = office.start()
    office.approve(other)
    shows(ada, f"/runs/{other}/cancel/", "This run is over")
    has(text_of(ada.post(f"/runs/{other}/cancel/", WHY), 409), "over first", WHY["reason"])
    paused = ada.post(f"/runs/{other}/pause/", follow=True)
    has(text_of(paused), "Nothing was changed: the run is completed already.")
    late = text_of(ada.post(f"/runs/{other}/message/", {"text": "<b>"}), 409)
    has(late, "Not sent: the run is completed already", "&lt;b&gt;")


# Pausing


def test_a_run_is_paused(ada: Client, bea: Client, office: Office, suspended: UUID) -> None:
    path = f"/runs/{suspended}/"
    pause, resume = f"{path}pause/", f"{path}resume/"
    shows(ada, suspended, pause)
    shows(bea, suspended, hides=["pause/"])
    answer = ada.post(pause)
    assert (answer.status_code, answer["Location"]) == (302, path)
    shows(ada, suspended, "Being paused", resume, hides=[pause])
    office.advance(suspended)
    shows(ada, suspended, "Paused by <bdi>ada</bdi>", resume)
    shows(ada, "/runs/?tab=paused", str(suspended), 'aria-current="page">Paused</a>')
    shows(ada, "/runs/?tab=working", hides=[str(suspended)])
    too_long = ada.post(resume, {"reason": "x" * 2_001}, follow=True)
    has(text_of(too_long), "Nothing was changed: the reason must have at most 2000")
    ada.post(resume, {"reason": "The books\r\nare open."})
    shows(ada, suspended, "Resume requested", pause)
    assert office.advance(suspended).status == "suspended"
    shows(ada, suspended, "paused by", hides=["Paused by"])
    shows(ada, f"{path}?tab=transcript", "Resumed the run: The books\nare open.")


def test_the_api_resumes_a_run_with_and_without_a_reason(
    ada_api: Caller, suspended: UUID, office: Office
) -> None:
    for sent in ('{"reason": "The books are open."}', ""):
        ada_api.post(f"/runs/{suspended}/pause", {})
        office.advance(suspended)
        assert ada_api.send(f"/runs/{suspended}/resume", sent).status_code == 200
        office.advance(suspended)
    acts = AuditEntry.objects.filter(run=suspended, act="resumed").order_by("seq")
    assert [json.loads(act.detail)["reason"] for act in acts] == ["The books are open.", ""]


# Messages

TEXT = "Level 3 is enough."


def test_a_message_is_heard_at_the_next_turn(
    ada: Client, bea: Client, admin: Client, ada_api: Caller, office: Office, suspended: UUID
) -> None:
    path = f"/runs/{suspended}/"
    shows(ada, suspended, "Write to the agent")
    shows(bea, suspended, hides=["Write to the agent"])
    answer = ada_api.post(f"/runs/{suspended}/messages", {"text": TEXT})
    assert (answer.status_code, answer.json()["unheard"]) == (202, 1)
    refused = ada_api.post(f"/runs/{suspended}/messages", {"text": TEXT, "cut_reply": "yes"})
    assert field_of(refused) == (422, "cut_reply")
    answer = ada.post(f"{path}message/", {"text": "No\r\nmore.", "cut_reply": "1"})
    assert Signal.objects.filter(kind="message", body__endswith='"cuts": true}').count() == 1
    assert (answer.status_code, answer["Location"]) == (302, path)
    shows(ada, suspended, "2 messages queued for the next turn")
    position = office.advance(suspended).position
    shows(ada, suspended, "queued, from <bdi>ada</bdi>", TEXT, "No\nmore.")
    shows(ada, f"{path}?tab=transcript", "message from <bdi>ada</bdi>")
    shows(admin, f"{path}at/{position}/", "message from ada", TEXT)
    assert office.approve(suspended).status == "completed"
    hides = ["queued, from", "Write to the agent"]
    shows(ada, suspended, "delivered, from <bdi>ada</bdi>", hides=hides)
    row = AuditEntry.objects.filter(run=suspended, act="wrote").earliest("seq")
    assert (row.actor, TEXT in row.detail, "sha256:" in row.detail) == ("ada", False, True)


# Trying again


@pytest.fixture
def failed(office: Office) -> UUID:
    """A run of Ada's that failed after Bea had approved a call; its model works again."""
    run = office.failed()
    delegation = ask(("account_agent", NEWCOMER))
    office.effects.agents["hr_onboarding"] = turns(delegation, say("done"))
    return run


def test_a_failed_run_is_retried(ada: Client, bea: Client, office: Office, failed: UUID) -> None:
    path = f"/runs/{failed}/retry/"
    shows(bea, failed, hides=["/retry/"])
    shows(bea, path, "may try it again.")
    shows(ada, failed, f'href="{path}"')
    shows(ada, path, "&lt;no&gt;", "Set privileges")
    assert ada.post(path, {"reason": ""}).status_code == 422
    assert ada.post(path, WHY).status_code == 302
    shows(ada, failed, hides=[f'href="{path}"'])
    assert office.advance(failed).status == "completed"
    has(text_of(ada.post(path, WHY), 409), "This run cannot be tried again")


def test_a_failed_run_is_retried_by_command(failed: UUID) -> None:
    said, given = StringIO(), {"name": "ada", "reason": "mended"}
    call_command("retry_run", failed, stdout=said, **given)
    assert f"Run {failed} is tried again." in said.getvalue()
    with pytest.raises(CommandError, match="only a failed run"):
        call_command("retry_run", failed, **given)
    with pytest.raises(CommandError, match="may not retry"):
        call_command("retry_run", failed, name="bea", reason="mended")


# Release from quarantine

DIED = "3 workers in a row died"


@pytest.fixture
def parked(office: Office) -> UUID:
    """A run at an approval, with recorded worker crashes."""
    run = office.start()
    died: dict[str, Any] = {"reason": DIED, "isolated": True, "losses": 3}
    Run.objects.filter(id=run).update(status="quarantined", due_at=None, **died)
    return run


def test_admins_let_a_run_go_on(admin: Client, ada: Client, office: Office, parked: UUID) -> None:
    path = f"/runs/{parked}/readmit/"
    shows(admin, parked, path)
    shows(admin, path, DIED)
    shows(ada, parked, hides=[path])
    has(text_of(admin.post(path, {"reason": " "}), 422), "the reason is required")
    assert Run.objects.get(id=parked).status == "quarantined"
    assert admin.post(path, WHY).status_code == 302
    row = Run.objects.get(id=parked)
    assert (row.status, row.reason, row.losses, row.isolated) == ("suspended", None, ALONE, True)
    assert row.due_at is not None
    act = AuditEntry.objects.get(run=parked, act="readmitted")
    assert (act.actor, json.loads(act.detail)["reason"]) == ("admin", WHY["reason"])
    assert admin.post(path, WHY).status_code == 409
    office.advance(parked, isolated=True)
    assert office.approve(parked).status == "completed"


def test_a_run_that_does_not_verify_stays(admin: Client, ada: Client, parked: UUID) -> None:
    last = JournalEntry.objects.filter(run_id=parked).latest("position")
    rows = JournalEntry.objects.filter(run_id=parked, position=last.position)
    rows.update(body=body(run_id=parked, position=last.position) + " ")
    has(text_of(admin.post(f"/runs/{parked}/readmit/", WHY), 409), "Not released")
    has(text_of(ada.post(f"/runs/{parked}/cancel/", WHY), 409), "does not verify")
    assert Run.objects.get(id=parked).status == "quarantined"


def test_a_quarantined_run_can_be_cancelled(ada: Client, office: Office, parked: UUID) -> None:
    shows(ada, f"/runs/{parked}/cancel/", "Cancel this run")
    assert ada.post(f"/runs/{parked}/cancel/", WHY).status_code == 302
    assert office.advance(parked, isolated=True).status == "cancelled"
    assert office.started(parked) == 0


def test_the_command_line_lets_a_run_out(parked: UUID, capsys: pytest.CaptureFixture[str]) -> None:
    def readmit(name: str) -> None:
        call_command("release_run", str(parked), "--as", name, "--reason", "because")

    with pytest.raises(CommandError, match="Only admins may release"):
        readmit("ada")
    readmit("admin")
    assert "out of quarantine" in capsys.readouterr().out


def _parts(client: Client, run: UUID, position: int | None = None) -> list[str]:
    """What the fork page says of calls that run again, that are asked about again, and that are kept."""
    position = position or Run.objects.get(id=run).position
    page = text(client, f"/runs/{run}/fork/{position}/")
    places = [page.find(f'id="{name}"') for name in ("again", "asked", "kept")]
    return [page[start:end] for start, end in zip(places, [*places[1:], len(page)], strict=True)]


def test_the_fork_page_says_what_becomes_of_each_call(ada: Client, office: Office) -> None:
    run = office.start()
    gated = Run.objects.get(id=run).position
    office.approve(run)
    again, asked, kept = _parts(ada, run, gated)
    has(again, "Set privileges", "Send welcome mail", hides=["Create account"])
    has(asked, "Set privileges")
    has(kept, "Create account")
    has(_parts(ada, office.in_doubt())[1], "was in doubt")


def test_an_entry_that_cannot_be_forked_offers_the_nearest_ones(
    ada: Client, ada_api: Caller, bea: Client, office: Office, suspended: UUID
) -> None:
    path, last = f"/runs/{suspended}/fork/", office.approve(suspended).position
    assert ada.post(f"{path}{last}/").status_code == 409
    newest = ada.get(path)["Location"]
    assert newest != f"{path}{last}/"
    offer = f'href="{newest}"'
    shows(ada, f"{path}{last}/", "This entry cannot be forked", offer, hides=["Create fork"])
    shows(ada, newest, "Create fork")
    for nowhere in (0, last + 1, 10**30):
        text(ada, f"{path}{nowhere}/", 404)
        assert ada.post(f"{path}{nowhere}/").status_code == 404
        told = ada_api.post(f"/runs/{suspended}/fork", {"position": nowhere})
        assert field_of(told) == (422, "position")
    assert Run.objects.count() == 1
    shows(bea, f"{path}1/", "You may not fork this run")
    shows(bea, suspended, hides=["an entry of this one"])


def test_a_run_is_exported_and_imported_by_the_api(
    admin_api: Caller,
    admin: Client,
    office: Office,
    suspended: UUID,
    tmp_path: Path,
    settings: Settings,
    published: None,
) -> None:
    sender = Sender(tmp_path)  # another installation, whose exports this one imports
    settings.IMPORT_KEYS = (sender.file,)
    answer = admin_api.post(f"/runs/{suspended}/export", {})
    assert answer["Content-Disposition"] == f'attachment; filename="{suspended}.json"'
    file = answer.content.decode()
    assert admin_api.post(f"/runs/{suspended}/export", {}).content == answer.content
    for refused in (b"", b"\xff"):
        assert code_of(admin_api.send("/imports", refused)) == (422, "not_importable")
    arrived = admin_api.send("/imports", sender.send(file))
    assert arrived.status_code == 201
    new = arrived.json()
    assert (new["requester"], new["status"], new["gates"]) == ("admin", "queued", [])
    assert office.advance(UUID(new["id"])).status == "suspended"
    for run, said in ((suspended, "Exported"), (new["id"], "Imported by")):
        for tab in ("timeline", "transcript", "state"):
            shows(admin, f"/runs/{run}/?tab={tab}", said)
    shows(admin, "/runs/?status=exported", "Exported")
