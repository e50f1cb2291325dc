"""People are mailed about requests that wait for them: in time, once, and never with a way to decide."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.message import Message
from http.server import BaseHTTPRequestHandler
from threading import Barrier, Event
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from approvals import clock
from approvals.governance import subscriptions
from approvals.governance.subscriptions import Act, SubscriptionTerms
from approvals.models import Approval, NoticeChannel, OutboxMessage, SentNotice
from approvals.notices import channels, due
from approvals.notices.channels import ChannelChoice, save_hours
from approvals.notices.due import KINDS
from approvals.outbox.messages import Sender
from approvals.people import accounts
from approvals.port.adapter import ApprovalService
from runtime.core.values.enums import GateKind, Risk
from runtime.errors import InvalidInput
from runtime.keyring import sealing
from runtime.models import Run
from tests.approvals.policies.office import asked, put_in_force
from tests.support import seeds
from tests.support.loopback import respond, serving
from tests.support.mail import Sink
from tests.support.notices import hears, look, send_notices
from tests.support.people import until
from tests.support.seeds import decide
from tests.support.threads import together

pytestmark = pytest.mark.django_db

FIRST = "Mail is on"
BERLIN = ZoneInfo("Europe/Berlin")
UNNAMEABLE = f"aaron@{'ü' * 63}.example"  # the label has more than 63 letters in a mail


@pytest.fixture
def bea(sink: Sink, settings: Any) -> Any:
    """Bea reviews, and is mailed about everything. She has read the first mail."""
    settings.PUBLIC_URL = "https://desk.example"
    actor = seeds.person("bea", *seeds.GROUPS["bea"])
    hears("bea", "bea@example.com")
    look()
    assert [mail["Subject"] for mail in sink.mails] == [FIRST]
    sink.mails.clear()
    return actor


def mailed(sink: Sink) -> list[str]:
    """The subjects of the mails of one more round."""
    sink.mails.clear()
    look()
    return [mail["Subject"] for mail in sink.mails]


def text_of(mail: Message) -> str:
    body = mail.get_payload(decode=True)
    assert isinstance(body, bytes)
    return body.decode()


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Moves the clock of the notices."""
    real = clock.read_time

    def move(by: timedelta) -> None:
        monkeypatch.setattr(clock, "read_time", lambda: real() + by)

    return move


@pytest.mark.usefixtures("bea")
def test_a_request_at_high_risk_is_mailed_at_once_and_once(sink: Sink) -> None:
    approval = seeds.pending()
    assert mailed(sink) == ["1 request waits for you, urgent"]
    [mail] = sink.mails
    body = text_of(mail)
    assert mail["To"] == "bea@example.com"
    assert f"High risk: {approval.sentence}" in body
    assert f"https://desk.example/a/{approval.id}/" in body
    assert str(seeds.ARGS["username"]) not in body.replace(
        approval.sentence, ""
    )  # no other argument
    assert mailed(sink) == []


@pytest.mark.usefixtures("bea")
@pytest.mark.parametrize(("risk", "minutes"), [(Risk.MEDIUM, 5), (Risk.LOW, 60)])
def test_other_risks_wait_first(sink: Sink, later: Any, risk: Risk, minutes: int) -> None:
    seeds.pending(risk=risk)
    later(timedelta(minutes=minutes - 1))
    assert mailed(sink) == []
    later(timedelta(minutes=minutes, seconds=1))
    assert mailed(sink) == ["1 request waits for you"]


@pytest.mark.usefixtures("bea")
def test_a_second_mail_waits_for_more_unless_one_is_urgent(sink: Sink, later: Any) -> None:
    for _ in range(2):
        seeds.pending(risk=Risk.MEDIUM)
        later(timedelta(minutes=6))
        found = mailed(sink)
    assert found == []
    seeds.pending()
    assert mailed(sink) == ["2 requests wait for you, 1 of them urgent"]


def test_a_person_is_mailed_only_about_requests_that_they_may_decide(sink: Sink, bea: Any) -> None:
    seeds.person("ada", *seeds.GROUPS["ada"])
    hears("ada", "ada@example.com")
    seeds.pending(requester="ada")
    mailed(sink)  # in the order of their accounts, which an earlier test may have made
    subjects = {mail["To"]: mail["Subject"] for mail in sink.mails}
    assert subjects == {
        "bea@example.com": "1 request waits for you, urgent",
        "ada@example.com": FIRST,
    }
    put_in_force("rules: [{name: Only ada, people: [ada]}]")
    seeds.pending(requester="cyril")
    assert mailed(sink) == ["1 request waits for you, urgent"]
    assert sink.mails[0]["To"] == "ada@example.com"


def test_what_is_decided_or_older_than_the_choice_is_not_mailed(sink: Sink, bea: Any) -> None:
    decide(seeds.pending(), bea, "deny", "No")
    seeds.pending()
    [channel] = channels.find_channels("bea")
    channels.change_channel("bea", channel.id, ChannelChoice(from_risk="low"))
    assert mailed(sink) == []


@pytest.mark.usefixtures("bea")
def test_only_urgent_ones_are_mailed_where_a_person_chose_that(sink: Sink, later: Any) -> None:
    [channel] = channels.find_channels("bea")
    channels.change_channel("bea", channel.id, ChannelChoice(from_risk="high"))
    seeds.pending(risk=Risk.MEDIUM)
    seeds.pending(risk=Risk.LOW, kind=GateKind.IN_DOUBT)
    later(timedelta(hours=2))
    assert mailed(sink) == ["1 request waits for you, urgent"]
    assert "In doubt: " in text_of(sink.mails[0])


def test_a_requester_is_mailed_about_ended_runs_and_released_texts_only_of_their_own(
    sink: Sink, bea: Any, later: Any
) -> None:
    seeds.person("ada", *seeds.GROUPS["ada"])
    hears("ada", "ada@example.com", "", runs=True)
    text, secret = (
        {
            "message": sealing.seal(
                "canary", sealing.encode_location("set_privileges", kind, "message")
            )
        }
        for kind in ("held", "args")
    )
    told, other, denied = (seeds.pending(args=args) for args in (text, secret, text))
    for approval in (told, other):
        decide(approval, bea)
    decide(denied, bea, "deny", "No")
    changed = seeds.pending(args=text)
    decide(changed, bea)
    Approval.objects.filter(pk=changed.pk).update(args='["$secret"')  # by a program, in Postgres
    done, others = seeds.run(), seeds.run(requester="cyril")
    old = seeds.run()
    Run.objects.filter(id__in=[done, others]).update(status="completed", ended_at=clock.read_time())
    Run.objects.filter(id=old).update(ended_at=clock.read_time() - timedelta(minutes=1))
    mailed(sink)
    mails = [mail for mail in sink.mails if mail["To"] == "ada@example.com"]
    assert [mail["Subject"] for mail in mails] == [FIRST, "2 of your runs have news"]
    body = text_of(mails[-1]).replace("\r\n", "\n")
    assert f"hr_onboarding: completed\nhttps://desk.example/runs/{done}/\n" in body
    assert f"a text for you was released\nhttps://desk.example/runs/{told.run_id}/\n" in body
    assert "canary" not in body
    last = seeds.run()
    Run.objects.filter(id=last).update(status="failed", ended_at=clock.read_time())
    assert mailed(sink) == []  # until ten minutes have passed
    later(timedelta(minutes=11))
    assert mailed(sink) == ["1 of your runs has news"]


@pytest.mark.usefixtures("bea")
def test_a_row_that_does_not_verify_is_not_mailed(sink: Sink) -> None:
    Approval.objects.filter(pk=seeds.pending().pk).update(sentence="Log in at evil.example")
    assert mailed(sink) == []


@pytest.mark.usefixtures("bea")
def test_hostile_text_stays_text_in_the_body(sink: Sink) -> None:
    shown = seeds.snapshot(seeds.run())
    seeds.opened(replace(shown, sentence="Pay\r\nBcc: eve@example.com\u202e 40"))
    assert mailed(sink) == ["1 request waits for you, urgent"]
    [mail] = sink.mails
    body = text_of(mail)
    assert (mail["Bcc"], "\u202e" in body, "⟦U+202E⟧" in body) == (None, False, True)


@pytest.mark.usefixtures("bea")
def test_a_mail_has_no_link_of_an_agent(sink: Sink) -> None:
    shown = seeds.snapshot(seeds.run())
    seeds.opened(replace(shown, sentence="Pay, see https://evil.example and WWW.evil.example"))
    seeds.pending(kind=GateKind.QUESTION)
    mailed(sink)
    body = text_of(sink.mails[0])
    assert "Pay, see https: / /evil.example and W W W .evil.example" in body
    assert "An agent asks you a question" in body


@pytest.mark.usefixtures("bea")
@pytest.mark.parametrize(
    ("choice", "most", "words"),
    [
        (
            "arguments",
            "arguments",
            ["High risk: Set", "username: new.hire", "security_level: 3", "token: "],
        ),
        ("arguments", "title", ["High risk: Set"]),
        ("nothing", "arguments", ["High risk\r\n"]),
        ("title", "nothing", ["High risk\r\n"]),
    ],
)
def test_a_notice_shows_the_least_of_choice_and_setting(
    sink: Sink, settings: Any, choice: str, most: str, words: list[str]
) -> None:
    settings.SIGNOFF_NOTICES = {"mail": most}
    [channel] = channels.find_channels("bea")
    channels.change_channel("bea", channel.id, ChannelChoice(from_risk="low", shows=choice))
    location = sealing.encode_location("set_privileges", "args", "token")
    seeds.pending(args={**seeds.ARGS, "token": sealing.seal("canary", location)})
    mailed(sink)
    body = text_of(sink.mails[0])
    assert [word for word in words if word not in body] == []
    assert ("username:" in body) is (choice == most)
    assert "$secret" not in body


@pytest.mark.usefixtures("bea")
def test_an_answer_that_breaks_off_keeps_no_notice_from_others(sink: Sink) -> None:
    seeds.person("dan", *seeds.GROUPS["bea"])
    hears("dan", "dan@example.com")
    sink.cut = True
    seeds.pending()
    assert sorted(mailed(sink)) == ["1 request waits for you, urgent", FIRST]
    told = {mail["Message-ID"] for mail in sink.mails}
    sink.cut = False
    assert len(mailed(sink)) == 3  # both again, with the same ids, and then what waits for dan
    assert told < {mail["Message-ID"] for mail in sink.mails}


def test_a_disabled_person_is_not_mailed(sink: Sink, bea: Any) -> None:
    seeds.person("admin", *seeds.GROUPS["admin"])
    accounts.disable("bea", actor="admin")
    seeds.pending()
    assert mailed(sink) == []


@pytest.mark.usefixtures("bea")
def test_a_refused_address_is_noted_and_stops_no_other_mail(sink: Sink) -> None:
    seeds.person("dan", *seeds.GROUPS["bea"])
    channel = hears("dan", "dan@example.com")
    sink.answers[:] = ["550 no such person"]
    send_notices()
    assert "no such person" in channels.find_channels("dan")[0].problem
    waits = OutboxMessage.objects.filter(destination=channel, body__isnull=False).get()
    assert waits.next_at > clock.read_time() + timedelta(minutes=59)
    seeds.pending()
    send_notices()
    assert [mail["To"] for mail in sink.mails] == ["bea@example.com"]
    assert mailed(sink) == [FIRST, "1 request waits for you, urgent"]
    assert channels.find_channels("dan")[0].problem == ""


@pytest.mark.usefixtures("bea")
def test_an_address_that_no_mail_can_name_stops_no_other_mail(sink: Sink) -> None:
    seeds.person("aaron", *seeds.GROUPS["bea"])
    channel = hears("aaron", "aaron@example.com")
    NoticeChannel.objects.filter(pk=channel).update(address={"address": UNNAMEABLE})
    seeds.pending()
    look()
    assert [mail["To"] for mail in sink.mails] == ["bea@example.com"]
    assert channels.find_channels("aaron")[0].problem != ""


@pytest.mark.usefixtures("bea")
def test_a_server_that_cannot_be_reached_loses_no_mail(sink: Sink, settings: Any) -> None:
    port, settings.EMAIL_PORT = settings.EMAIL_PORT, 1
    seeds.pending()
    assert mailed(sink) == []
    assert "refused" in channels.find_channels("bea")[0].problem
    settings.EMAIL_PORT = port
    assert mailed(sink) == ["1 request waits for you, urgent"]


@pytest.mark.usefixtures("bea")
def test_what_was_decided_before_another_attempt_is_dropped(
    sink: Sink, settings: Any, bea: Any
) -> None:
    port, settings.EMAIL_PORT = settings.EMAIL_PORT, 1
    approval = seeds.pending()
    assert mailed(sink) == []
    settings.EMAIL_PORT = port
    decide(approval, bea, "deny", "No")
    assert mailed(sink) == []
    assert OutboxMessage.objects.filter(kind="channel", ending="dropped").count() == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("bea")
def test_a_mail_that_hangs_delays_no_webhook_and_no_other_person(sink: Sink, settings: Any) -> None:
    settings.SIGNOFF_LOOPBACK_WEBHOOKS = True
    seeds.person("dan", *seeds.GROUPS["bea"])
    sink.slow = "dan@example.com"
    hears("dan", sink.slow)
    stop, sender, hooks = Event(), Sender({**KINDS, **subscriptions.KINDS}), list[bytes]()

    def take(request: BaseHTTPRequestHandler, body: bytes) -> None:
        hooks.append(body)
        respond(request, 204)

    def is_hanging() -> bool | None:
        sender.send_due(stop)
        return sink.hanging == 1 or None

    def are_told() -> bool | None:
        sender.send_due(stop)
        return (len(sink.mails) == 1 and len(hooks) == 1) or None

    admin = seeds.person("admin", *seeds.GROUPS["admin"])
    with serving(take) as url:
        terms = SubscriptionTerms(name="Bot", url=url, events=["run.cancelled"])
        subscription = subscriptions.subscribe(terms, actor=admin)
        try:
            until(is_hanging, "a mail to hang")
            seeds.pending()
            subscriptions.change(subscription.id, Act.TEST, actor=admin)
            until(are_told, "the other person and the program to be told")
            assert not sink.go.is_set()
        finally:
            stop.set()
            sink.go.set()
            sender._pool.shutdown()
    assert sink.mails[0]["To"] == "bea@example.com"


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("bea")
def test_two_sweepers_at_once_mail_once(sink: Sink) -> None:
    seeds.pending()
    start = Barrier(4)

    def sweep() -> None:
        start.wait()
        send_notices()

    together([sweep] * 4)
    send_notices()  # a claim beside others may miss a message until the next round
    assert (len(sink.mails), SentNotice.objects.count()) == (1, 1)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"kind": "pigeon"}, "kind"),
        ({"from_risk": "some"}, "from_risk"),
        ({"address": "bea"}, "address"),
        ({"address": ""}, "address"),
        ({"address": "a@b.example\nBcc: eve@example.com"}, "address"),
        ({"address": "a" * 250 + "@example.com"}, "address"),
        ({"address": UNNAMEABLE}, "address"),
    ],
)
def test_a_wrong_choice_is_refused_and_adds_nothing(
    bea: Any, fields: dict[str, str], field: str
) -> None:
    values = {"person": "bea", "address": "bea@other.example", **fields}
    with pytest.raises(InvalidInput) as refused:
        hears(**values)  # type: ignore[arg-type]
    assert refused.value.field == field
    assert len(channels.find_channels("bea")) == 1


def test_a_pause_between_notices_ends_after_ten_minutes() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    assert not due.may_tell(False, at, at + timedelta(minutes=9))
    assert due.may_tell(False, at, at + timedelta(minutes=10))


@pytest.fixture
def berlin(bea: Any) -> Callable[..., None]:
    """Has Bea choose hours in Berlin."""

    def choose(**fields: Any) -> None:
        empty = {"quiet_from": "", "quiet_until": "", "urgent_at_night": False, "digest": ""}
        save_hours("bea", **{**empty, "zone": "Europe/Berlin", **fields})

    return choose


def at_berlin(monkeypatch: pytest.MonkeyPatch, hour: int, minute: int = 0, days: int = 1) -> None:
    """Set the clock of the notices to this time of a later day in Berlin."""
    day = datetime.now(BERLIN) + timedelta(days=days)
    moment = day.replace(hour=hour, minute=minute, second=0, microsecond=0)
    monkeypatch.setattr(clock, "read_time", lambda: moment.astimezone(UTC))


@pytest.mark.parametrize("urgent_at_night", [True, False])
def test_quiet_hours_of_the_persons_zone_delay_notices(
    sink: Sink, berlin: Any, monkeypatch: pytest.MonkeyPatch, urgent_at_night: bool
) -> None:
    berlin(quiet_from="22:00", quiet_until="07:30", urgent_at_night=urgent_at_night)
    seeds.pending(risk=Risk.MEDIUM)
    at_berlin(monkeypatch, 22)
    assert mailed(sink) == []
    seeds.pending()
    at_berlin(monkeypatch, 7, 29, days=2)
    assert mailed(sink) == ["1 request waits for you, urgent"] * urgent_at_night
    at_berlin(monkeypatch, 7, 45, days=2)
    assert mailed(sink) == (
        ["1 request waits for you"]
        if urgent_at_night
        else ["2 requests wait for you, 1 of them urgent"]
    )


def test_a_digest_collects_news_that_are_not_urgent(
    sink: Sink, berlin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    began_at = datetime.now(BERLIN).replace(minute=0, second=0, microsecond=0)
    berlin(digest=str(began_at.hour))
    for _ in range(2):
        seeds.pending(risk=Risk.LOW)
    next_at = began_at.astimezone(UTC) + timedelta(days=1)
    monkeypatch.setattr(clock, "read_time", lambda: next_at - timedelta(minutes=1))
    assert mailed(sink) == []
    seeds.pending()
    assert mailed(sink) == ["1 request waits for you, urgent"]
    monkeypatch.setattr(clock, "read_time", lambda: next_at + timedelta(minutes=15))
    assert mailed(sink) == ["2 requests wait for you"]


@pytest.mark.usefixtures("bea")
def test_people_are_reminded_once_when_a_quarter_of_the_time_is_left(
    sink: Sink, later: Any
) -> None:
    seeds.pending(expires_at=seeds.moment(2400))
    assert mailed(sink) == ["1 request waits for you, urgent"]
    later(timedelta(minutes=29))
    assert mailed(sink) == []
    later(timedelta(minutes=31))
    assert mailed(sink) == ["Reminder: 1 request waits for you, urgent"]
    assert "Reminder: High risk: " in text_of(sink.mails[0])
    later(timedelta(minutes=32))
    assert mailed(sink) == []


@pytest.mark.usefixtures("bea")
def test_a_request_with_a_short_deadline_is_told_before_it(sink: Sink, later: Any) -> None:
    seeds.pending(risk=Risk.LOW, expires_at=seeds.moment(1200))
    assert mailed(sink) == []
    later(timedelta(minutes=16))
    assert mailed(sink) == ["1 request waits for you"]


@pytest.mark.usefixtures("bea")
def test_people_are_told_once_that_a_request_escalates(sink: Sink) -> None:
    policy = (
        "rules: [{name: A, people: [bea], escalate: [{groups: [reviewers], expires_after: 60}]}]"
    )
    asked(policy, expires_at=seeds.moment(30))
    assert mailed(sink) == ["1 request waits for you, urgent"]
    ApprovalService().look_ahead(Event())
    assert Approval.objects.get().escalated == 1
    assert mailed(sink) == ["Escalated: 1 request waits for you, urgent"]
    assert mailed(sink) == []
