"""Mails people about requests that wait for them, and about their own runs; the sweeper does it each minute.

A person is mailed once about a request or an ended run, and at most every ten minutes unless one is urgent. Before a
mail the sweeper reserves the person for five minutes, so two sweepers do not mail the same person. A sweeper that dies
in between leaves the mail to a later round, which may send it again, with the same Message-ID.
"""

import hashlib
import logging
import smtplib
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.utils import parseaddr
from threading import Event
from uuid import UUID

from django.conf import settings
from django.core.mail import EmailMessage
from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from approvals import clock
from approvals.models import IN_DOUBT, Approval, MailPreference, SentMail
from approvals.people import mail_text
from approvals.requests import verification
from approvals.rights import approvals, principals
from runtime.core.values.enums import Risk
from runtime.core.values.limits import plain
from runtime.ports.access import Actor

log = logging.getLogger(__name__)

MAX_IN_A_MAIL = 200  # the rest follows in the next mail
MAX_PROBLEM = 300
LEASE = timedelta(minutes=5)  # longer than a mail takes
RETRY = timedelta(hours=1)  # after a refusal
KEPT = timedelta(days=90)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mail:
    """A mail to a person about these requests, or runs that ended; without any it is the first one to an address."""

    person: int
    name: str
    address: str
    subject: str
    body: str
    message_id: str
    approval_ids: tuple[UUID, ...] = ()


def send_due(stop: Event) -> None:
    """Mail everyone for whom a mail is due. Raises OSError or SMTPException if the server does not take a mail.

    That person is tried again in five minutes, so the next round begins with the others.
    """
    SentMail.objects.filter(at__lt=clock.now() - KEPT).delete()
    may_try = Q(retry_at=None) | Q(retry_at__lte=clock.now())
    people = MailPreference.objects.filter(may_try, person__is_active=True).order_by("person_id")
    for person in people.values_list("person_id", flat=True):
        while not stop.is_set() and (mail := _claim(person)) is not None:
            _send(mail)


def _claim(person: int) -> _Mail | None:
    """Reserve the person for LEASE and return their next mail; None without one, or if another sweeper does it."""
    with transaction.atomic():
        rows = MailPreference.objects.select_for_update(skip_locked=True, of=("self",))
        row = rows.select_related("person").filter(person_id=person).first()
        at = clock.now()
        if row is None or (row.retry_at is not None and row.retry_at > at):
            return None
        is_new = row.confirmed_at is None or row.problem != ""
        mail = (
            _mail(row, mail_text.build_first_mail())
            if is_new
            else _next(row, at) or _about_runs(row, at)
        )
        if mail is not None:
            row.retry_at = at + LEASE
            row.save(update_fields=["retry_at"])
        return mail


def _send(mail: _Mail) -> None:
    """Send a mail, outside of any transaction, and record it. A refused address is tried again in an hour."""
    rows = MailPreference.objects.filter(person_id=mail.person)
    try:
        EmailMessage(
            subject=mail.subject,
            body=mail.body,
            to=[mail.address],
            headers={"Message-ID": mail.message_id, "Auto-Submitted": "auto-generated"},
        ).send()
    except (smtplib.SMTPRecipientsRefused, smtplib.SMTPDataError, UnicodeError) as exc:
        log.warning("A mail about requests to %s was refused: %s", mail.name, exc)
        problem, again = plain(str(exc))[:MAX_PROBLEM], clock.now() + RETRY
        rows.update(problem=problem, retry_at=again)
        return
    at = clock.now()
    with transaction.atomic():
        sent = [SentMail(about=request, person=mail.name, at=at) for request in mail.approval_ids]
        SentMail.objects.bulk_create(sent, ignore_conflicts=True)
        rows.update(confirmed_at=at, problem="", retry_at=None)


def _next(row: MailPreference, at: datetime) -> _Mail | None:
    """Return the mail about the requests that are due for this person, None if there are none."""
    name = row.person.get_username()
    principal = principals.principal_of(Actor(person=name))
    waiting = Approval.objects.filter(
        approvals.decidable_requests(principal), status=Approval.Status.PENDING
    )
    due = list(_unnoticed(waiting, row, at)[:MAX_IN_A_MAIL])
    verified = [approval for approval in due if verification.fault(approval) is None]
    urgent = any(mail_text.is_urgent(approval) for approval in verified)
    if not verified or not mail_text.may_send(urgent, _last(name), at):
        return None
    return _mail(
        row,
        mail_text.build_request_mail(verified, waiting.count()),
        tuple(approval.id for approval in verified),
    )


def _about_runs(row: MailPreference, at: datetime) -> _Mail | None:
    """Return the mail about the person's own runs, None if there is no news or they were mailed just now."""
    name = row.person.get_username()
    if not row.runs or not mail_text.may_send(False, _last(name), at):
        return None
    news = mail_text.news(name, row.since, at)
    return (
        _mail(row, mail_text.build_run_mail(news), tuple(entry.about for entry in news))
        if news
        else None
    )


def _last(person: str) -> datetime | None:
    """Return when this person was last mailed."""
    rows = SentMail.objects.filter(person=person).order_by("-at").values_list("at", flat=True)
    return rows.first()


def _unnoticed(
    waiting: QuerySet[Approval], row: MailPreference, at: datetime
) -> QuerySet[Approval]:
    """Return the waiting requests that are due and that this person was not mailed about, oldest first."""
    if row.about == MailPreference.About.OFF:
        return waiting.none()
    ripe = IN_DOUBT
    for risk, delay in mail_text.DELAYS.items():
        ripe |= Q(risk=risk, created_at__lte=at - delay)
    rows = waiting.filter(ripe, created_at__gte=row.since)
    if row.about == MailPreference.About.HIGH:
        rows = rows.filter(IN_DOUBT | Q(risk=Risk.HIGH))
    mailed = SentMail.objects.filter(person=row.person.get_username(), about=OuterRef("pk"))
    return rows.exclude(Exists(mailed)).order_by("created_at", "id")


def _mail(
    row: MailPreference, written: tuple[str, str], approval_ids: tuple[UUID, ...] = ()
) -> _Mail:
    subject, body = written
    return _Mail(
        person=row.person_id,
        name=row.person.get_username(),
        address=row.address,
        subject=subject,
        body=body,
        message_id=_message_id(" ".join([row.address, str(row.since), *map(str, approval_ids)])),
        approval_ids=approval_ids,
    )


def _message_id(about: str) -> str:
    domain = parseaddr(settings.DEFAULT_FROM_EMAIL)[1].rpartition("@")[2] or "localhost"
    return f"<{hashlib.sha256(about.encode()).hexdigest()[:40]}@{domain}>"
