"""The form that extends the deadline of a request: on its page, in the reader's time zone, for reviewers and admins."""

from datetime import UTC, datetime, timedelta

from django.test import Client

from runtime.control.verification import verify
from tests.support.api_client import Caller
from tests.support.engine import types
from tests.support.office import Office
from tests.support.pages import has, send, shows, text_of

DAYS_10 = timedelta(days=10)


def local(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M}"


def test_a_reviewer_extends_and_everybody_reads_why(
    bea: Client, ada: Client, office: Office
) -> None:
    approval = office.request(office.start())
    until = datetime.now(UTC) + DAYS_10
    has(shows(bea, approval, "Extend the deadline", "extend-until"), "at most 30 days from now")
    sent = send(bea, approval, "extend", until=local(until), reason="Her <b>lead</b> is away.")
    assert sent.status_code == 302
    told = (
        "Extended",
        local(until).replace("T", " "),
        "by <bdi>bea",
        "Her &lt;b&gt;lead",
        f'expires <time datetime="{local(until)}',
    )
    for reader in (bea, ada):
        shows(reader, approval, *told)
    assert office.advance(approval.run_id).status == "suspended"
    assert types(approval.run_id)[-1] == "GateExtended"
    shows(ada, f"/runs/{approval.run_id}/?tab=transcript", "Extended a deadline", "lead")
    assert verify(approval.run_id).is_consistent
    send(bea, approval, "approve")
    assert office.advance(approval.run_id).status == "completed"
    assert verify(approval.run_id).is_consistent
    shows(ada, approval, *told[:-1])


def test_the_deadline_is_in_the_zone_of_the_reader(bea: Client, office: Office) -> None:
    approval = office.request(office.start())
    bea.cookies["signoff_zone"] = "Asia/Tokyo"
    day = datetime.now(UTC).date() + DAYS_10
    shows(bea, approval, "JST")
    send(bea, approval, "extend", until=f"{day}T09:00", reason="x")
    approval.refresh_from_db()
    assert approval.expires_at == datetime(day.year, day.month, day.day, tzinfo=UTC)


def test_a_wrong_form_comes_back_with_its_texts(bea: Client, office: Office) -> None:
    approval = office.request(office.start())
    moment = local(datetime.now(UTC) + timedelta(days=1))
    page = text_of(send(bea, approval, "extend", until=moment, reason="Why not"), 422)
    has(page, "after the present deadline", moment, "Why not")
    approval.refresh_from_db()
    assert approval.first_expires_at is None


def test_an_admin_extends_what_others_decide(
    bea: Client, admin: Client, ada: Client, office: Office
) -> None:
    approval = office.request(office.start())
    shows(admin, approval, "not decide it", "extend-until", hides=["Hand over", "Write a remark"])
    shows(ada, approval, hides=["extend-until"])
    sent = send(admin, approval, "extend", until=local(datetime.now(UTC) + DAYS_10), reason="x")
    assert sent.status_code == 302
    shows(bea, approval, "by <bdi>admin")


def test_a_program_extends(bea_api: Caller, office: Office) -> None:
    approval = office.request(office.start())
    until = (datetime.now(UTC) + DAYS_10).isoformat(timespec="seconds")
    answer = bea_api.post(f"/approvals/{approval.id}/extension", {"until": until, "reason": "x"})
    assert answer.status_code == 200
    told = answer.json()
    assert datetime.fromisoformat(told["expires_at"]) == datetime.fromisoformat(until)
    assert told["first_expires_at"] < told["expires_at"]
    assert told["digest"] == approval.approval_digest
