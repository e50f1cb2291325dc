"""Links with which people choose their own password: an invitation, or a reset.

An admin makes the link and sees it once, so the admin is the giver of the password that it sets, as if the admin had
typed it. A link ends when it is used, when a newer one is made, after HOURS, and when the person is
disabled or their password is changed or removed. A GET of it changes nothing, because scanners of mail open links.
The links of Django and allauth name no giver, and cannot be listed or ended.
"""

import logging
import secrets
import smtplib
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.auth.models import User
from django.core.mail import EmailMessage

from approvals import clock
from approvals.errors import LastAdmin, LinkOver
from approvals.models import PasswordLink
from approvals.people import accounts, tokens
from approvals.rights import assignments
from approvals.signed.audit import log_change

HOURS = 48
log = logging.getLogger(__name__)
_BODY = """\
Hello {person},

an admin of Signoff at {site} sent you this link. It lets you choose {choice}, once, within {hours} hours:

{link}

If you did not expect it, leave it alone and ask the admin: opening the link changes nothing by itself.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewLink:
    """A link as its maker sees it, once: `plain` is the last part of its address."""

    person: str
    plain: str
    expires_at: datetime
    is_first: bool  # the person has no password yet


def create(username: str, *, actor: str | None) -> NewLink:
    """Make a link for a person, which ends their earlier ones. Raise LastAdmin for oneself and a disabled person."""
    if actor == username:
        raise LastAdmin("Your own password is changed on the page Your account.")
    with accounts.lock_people():
        person = accounts.read_person(username)
        if not person.is_active:
            raise LastAdmin(f"{username} is disabled: enable the account first.")
        at = clock.read_time()
        PasswordLink.objects.filter(person=person, ended_at=None).update(ended_at=at)
        row = PasswordLink(
            public_id=secrets.token_hex(8),
            person=person,
            by=actor,
            created_at=at,
            expires_at=at + timedelta(hours=HOURS),
        )
        plain = tokens.add(row, row.public_id, secrets.token_hex(32))
        log_change(actor, f"made a password link for {username}")
    return NewLink(
        person=username,
        plain=plain,
        expires_at=row.expires_at,
        is_first=not person.has_usable_password(),
    )


def read_username(plain: str) -> str:
    """Return for whom a link is. Raise LinkOver if it is unknown or over."""
    return _require_valid(plain).person.get_username()


def use(plain: str, password: str) -> User:
    """Set the password of a link's person, and end the link and their sessions.

    Raise LinkOver as `read_username` does, and InvalidInput naming `password`.
    """
    accounts.check_password(password, read_username(plain))
    with accounts.lock_people():
        row = _require_valid(plain)  # read again under the lock, so that a link is used once
        PasswordLink.objects.filter(pk=row.pk).update(ended_at=clock.read_time())
        person = row.person
        is_admin = person.get_username() in accounts.list_admins()
        person.set_password(password)
        person.save(update_fields=["password"])
        needs_second = is_admin and row.by is not None
        assignments.grant(person, assignments.CREDENTIAL, actor=row.by, needs_second=needs_second)
        if credential := assignments.find_password_row(person):
            assignments.change_password(credential, person)
        accounts.end_sessions(person)
        log_change(
            person.get_username(), f"chose a password with a link of {row.by or 'an operator'}"
        )
    return person


def _require_valid(plain: str) -> PasswordLink:
    row = tokens.find(PasswordLink.objects.select_related("person"), plain)
    if row is None:
        raise LinkOver
    is_over = row.ended_at is not None or row.expires_at <= clock.read_time()
    if is_over or not row.person.is_active:
        raise LinkOver
    if row.by is not None and row.by not in accounts.list_admins():  # no admin any more
        raise LinkOver
    return row


def build_address(link: NewLink) -> str:
    """Return the whole address of a link."""
    return f"{settings.PUBLIC_URL}/password/{link.plain}/"


def send(link: NewLink, to: str) -> bool:
    """Mail the link. Tell whether the mail server took it."""
    choice = "a password" if link.is_first else "a new password"
    body = _BODY.format(
        person=link.person,
        site=settings.PUBLIC_URL,
        choice=choice,
        hours=HOURS,
        link=build_address(link),
    )
    headers = {"Auto-Submitted": "auto-generated"}
    mail = EmailMessage(subject=f"Choose {choice} for Signoff", body=body, to=[to], headers=headers)
    try:
        mail.send()
    except (OSError, ValueError, smtplib.SMTPException) as exc:
        log.warning("The mail with a password link of %s was not sent: %s", link.person, exc)
        return False
    return True
