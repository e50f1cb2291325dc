"""Mails a password link to its person."""

import logging
import smtplib

from django.conf import settings
from django.core.mail import EmailMessage

from approvals.people.password_links import HOURS, NewLink

log = logging.getLogger(__name__)

_BODY = """\
Hello {person},

an admin of Signoff at {site} sent you this link. It lets you choose {what}, once, within {hours} hours:

{link}

If you did not expect it, leave it alone and ask the admin: opening the link changes nothing by itself.
"""


def address_of(link: NewLink) -> str:
    """Return the whole address of a link."""
    return f"{settings.PUBLIC_URL}/password/{link.plain}/"


def send(link: NewLink, to: str) -> bool:
    """Mail the link. Tell whether the mail server took it."""
    what = "a password" if link.is_first else "a new password"
    body = _BODY.format(
        person=link.person,
        site=settings.PUBLIC_URL,
        what=what,
        hours=HOURS,
        link=address_of(link),
    )
    headers = {"Auto-Submitted": "auto-generated"}
    mail = EmailMessage(subject=f"Choose {what} for Signoff", body=body, to=[to], headers=headers)
    try:
        mail.send()
    except (OSError, ValueError, smtplib.SMTPException) as exc:
        log.warning("The mail with a password link of %s was not sent: %s", link.person, exc)
        return False
    return True
