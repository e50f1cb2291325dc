"""Mail through the server at EMAIL_URL."""

import hashlib
import smtplib
from contextlib import suppress
from email.utils import parseaddr
from typing import Annotated

from django.conf import settings
from django.core.mail import EmailMessage, get_connection
from pydantic import Field

from agents.sdk import NotDone, ToolContext, ToolError, tool
from agents.tools.directory import EmailAddress, FullName, Username

# No control characters: a line break in a subject would end the header.
Subject = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
Body = Annotated[str, Field(min_length=1, max_length=20_000)]

WELCOME = """\
Hello {full_name},

welcome! Your account is ready. Your username is {username}.
"""


@tool(risk="low", sentence="Send {full_name} the welcome mail at {email}")
def send_welcome_mail(
    context: ToolContext, full_name: FullName, email: EmailAddress, username: Username
) -> dict[str, str]:
    """Send the welcome mail to a new colleague. Returns its Message-ID."""
    body = WELCOME.format(full_name=full_name, username=username)
    return send_text(context, email, "Welcome", body)


@tool(approval=True, risk="medium", sentence="Send {to} a mail: {subject}")
def send_mail(
    context: ToolContext, to: EmailAddress, subject: Subject, body: Body
) -> dict[str, str]:
    """Send a mail to one address, as plain text. Returns its Message-ID."""
    return send_text(context, to, subject, body)


def send_text(context: ToolContext, to: str, subject: str, body: str) -> dict[str, str]:
    """Send a mail for a call of class `write`, with the same Message-ID for all its attempts. Return that id.

    Raise NotDone or ToolError if it certainly did not go out.
    """
    # One id for all attempts of a call, so that a mail sent twice can be recognised.
    domain = parseaddr(settings.DEFAULT_FROM_EMAIL)[1].rpartition("@")[2] or "localhost"
    message_id = f"<{hashlib.sha256(context.key.encode()).hexdigest()[:40]}@{domain}>"
    message = EmailMessage(subject=subject, body=body, to=[to], headers={"Message-ID": message_id})
    connection = get_connection(timeout=context.remaining())
    # An error other than these two leaves in doubt whether the mail went out.
    try:
        connection.open()
    except (OSError, smtplib.SMTPException) as exc:
        raise NotDone(f"the mail server cannot be reached: {exc}", cause="network") from exc
    try:
        connection.send_messages([message])
    except smtplib.SMTPRecipientsRefused as exc:
        codes = [code for code, _ in exc.recipients.values()]
        raise _make_refusal(codes, f"the recipient: {exc.recipients}") from exc
    except (smtplib.SMTPSenderRefused, smtplib.SMTPDataError) as exc:
        raise _make_refusal([exc.smtp_code], f"the mail: {exc}") from exc
    finally:
        # The answer to QUIT says nothing about the mail.
        with suppress(OSError, smtplib.SMTPException):
            connection.close()
    return {"message_id": message_id}


def _make_refusal(codes: list[int], subject: str) -> NotDone | ToolError:
    """Make an error of a refusal. A code in the 400s is temporary (RFC 5321, section 4.2.1)."""
    if all(400 <= code < 500 for code in codes):
        return NotDone(f"the mail server does not take it now: it refused {subject}")
    return ToolError(f"the mail server refused {subject}")
