"""The welcome mail, to a real SMTP server on loopback."""

import smtplib
import socket

import pytest
from pytest_django import Settings

from agents.errors import NotDone, ToolError
from agents.tools.mail import send_welcome_mail
from tests.agents.conftest import Sink, context

ZOE = {"full_name": "Zoë O’Neill", "email": "zoe@example.com", "username": "zoe"}


def test_the_mail_reaches_only_its_recipient(sink: Sink) -> None:
    result = send_welcome_mail(context(), **ZOE)
    (mail,) = sink.mails
    assert mail["To"] == "zoe@example.com"
    assert mail["From"] == "Abeyance <desk@abeyance.example>"
    assert mail["Message-ID"] == result["message_id"]
    text = mail.get_payload(decode=True)
    assert isinstance(text, bytes)
    assert "Hello Zoë O’Neill" in text.decode()
    assert "Your username is zoe." in text.decode()


def test_every_attempt_at_one_call_has_the_same_message_id(sink: Sink) -> None:
    ids = [send_welcome_mail(context(key), **ZOE)["message_id"] for key in ("a", "a", "b")]
    assert ids[0] == ids[1] != ids[2]
    assert all(one.endswith("@abeyance.example>") for one in ids)


def test_a_server_that_is_away_means_that_nothing_was_sent(settings: Settings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", port
    with pytest.raises(NotDone, match="cannot be reached"):
        send_welcome_mail(context(), **ZOE)


def test_a_mail_the_server_refuses_is_a_failed_tool(sink: Sink) -> None:
    sink.answers.append("554 no thanks")
    with pytest.raises(ToolError, match="no thanks"):
        send_welcome_mail(context(), **ZOE)
    assert sink.mails == []


def test_a_mail_that_is_not_taken_now_was_certainly_not_sent(sink: Sink) -> None:
    sink.answers.append("451 try again later")
    with pytest.raises(NotDone, match="try again later"):
        send_welcome_mail(context(), **ZOE)
    assert sink.mails == []


def test_losing_the_connection_after_the_mail_leaves_it_in_doubt(sink: Sink) -> None:
    sink.cut = True
    with pytest.raises((smtplib.SMTPServerDisconnected, ConnectionError)):
        send_welcome_mail(context(), **ZOE)
    assert len(sink.mails) == 1
