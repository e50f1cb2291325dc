"""Mails people about requests that wait for them; the sweeper does it each minute.

A person is mailed once about a request, and at most every ten minutes unless one is urgent. The row of the person stays
locked until the mail server has taken the mail, so two sweepers do not mail the same person. A sweeper that dies in
between mails again, with the same Message-ID.
"""

import hashlib
import logging
import smtplib
from collections.abc import Sequence
from datetime import datetime, timedelta
from email.utils import parseaddr
from threading import Event
from uuid import UUID

from django.conf import settings
from django.core.mail import EmailMessage
from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from approvals import clock
from approvals.models import MailPreference, Notice, Request
from approvals.notices import due, text
from approvals.permissions import principals, request_rules
from approvals.requests import verification
from runtime.core.enums import GateKind, Risk
from runtime.core.limits import plain

log = logging.getLogger(__name__)

MAX_IN_A_MAIL = 200  # the rest follows in the next mail
MAX_PROBLEM = 300
RETRY = timedelta(hours=1)  # after a refusal
KEPT = timedelta(days=90)


def send_due(stop: Event) -> None:
    """Mail everyone for whom a mail is due. Raises OSError or SMTPException if the server takes no mail at all."""
    Notice.objects.filter(at__lt=clock.now() - KEPT).delete()
    may_try = Q(retry_at=None) | Q(retry_at__lte=clock.now())
    people = MailPreference.objects.filter(may_try, person__is_active=True).order_by("person_id")
    for person in people.values_list("person_id", flat=True):
        if stop.is_set():
            return
        _send_to(person)


def _send_to(person: int) -> None:
    """Mail one person, unless another sweeper does. A refused address is noted, and tried again in an hour."""
    try:
        for send in (_send_first, _send_due):
            with transaction.atomic():
                rows = MailPreference.objects.select_for_update(skip_locked=True, of=("self",))
                row = rows.select_related("person").filter(person_id=person).first()
                if row is not None:
                    send(row)
    except (smtplib.SMTPRecipientsRefused, smtplib.SMTPDataError) as exc:
        log.warning("The mail server refused a mail about requests to person %s: %s", person, exc)
        problem, again = plain(str(exc))[:MAX_PROBLEM], clock.now() + RETRY
        MailPreference.objects.filter(person_id=person).update(problem=problem, retry_at=again)


def _send_first(row: MailPreference) -> None:
    if row.confirmed_at is None or row.problem:
        _send(row, text.first(), [])
        row.confirmed_at, row.problem, row.retry_at = clock.now(), "", None
        row.save(update_fields=["confirmed_at", "problem", "retry_at"])


def _send_due(row: MailPreference) -> None:
    at = clock.now()
    name = row.person.get_username()
    principal = principals.principal_named(name)
    waiting = Request.objects.filter(
        request_rules.decidable_requests(principal), status=Request.Status.PENDING
    )
    found = list(_unnoticed(waiting, row, at)[:MAX_IN_A_MAIL])
    if not found:
        return
    last = Notice.objects.filter(person=name).order_by("-at").values_list("at", flat=True).first()
    if not due.may_send(any(due.is_urgent(one.kind, one.risk) for one in found), last, at):
        return
    shown = [one for one in found if verification.fault(one) is None]
    if shown:
        _send(row, text.of(shown, waiting.count()), [one.id for one in shown])
    Notice.objects.bulk_create(Notice(request=one.id, person=name, at=at) for one in found)


def _unnoticed(waiting: QuerySet[Request], row: MailPreference, at: datetime) -> QuerySet[Request]:
    """Return the waiting requests that are due and that this person was not mailed about, oldest first."""
    ripe = Q(kind=GateKind.IN_DOUBT)
    for risk, delay in due.DELAYS.items():
        ripe |= Q(risk=risk, created_at__lte=at - delay)
    rows = waiting.filter(ripe, created_at__gte=row.since)
    if row.about == MailPreference.About.HIGH:
        rows = rows.filter(Q(kind=GateKind.IN_DOUBT) | Q(risk=Risk.HIGH))
    mailed = Notice.objects.filter(person=row.person.get_username(), request=OuterRef("pk"))
    return rows.exclude(Exists(mailed)).order_by("created_at", "id")


def _send(row: MailPreference, mail: tuple[str, str], requests: Sequence[UUID]) -> None:
    subject, body = mail
    about = " ".join([row.address, str(row.since), *map(str, requests)])
    EmailMessage(
        subject=subject,
        body=body,
        to=[row.address],
        headers={"Message-ID": _message_id(about), "Auto-Submitted": "auto-generated"},
    ).send()


def _message_id(about: str) -> str:
    domain = parseaddr(settings.DEFAULT_FROM_EMAIL)[1].rpartition("@")[2] or "localhost"
    return f"<{hashlib.sha256(about.encode()).hexdigest()[:40]}@{domain}>"
