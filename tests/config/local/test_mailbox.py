"""The SMTP sink stores each message as one complete file, or refuses it."""

import asyncio
import smtplib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from config.local.servers import mailbox


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """Yield a sink that stores its mail in tmp_path."""
    loop = asyncio.new_event_loop()
    listener = socket.create_server(("127.0.0.1", 0))
    server = loop.run_until_complete(mailbox.listen(listener, tmp_path))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield listener.getsockname()[1]
    loop.call_soon_threadsafe(server.close)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.run_until_complete(server.wait_closed())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


PEOPLE = ("hr@example.org", "new@example.org")


def test_a_confirmed_message_is_stored_as_one_file(tmp_path: Path, port: int) -> None:
    with smtplib.SMTP("127.0.0.1", port) as client:
        for subject in ("one", "two"):
            client.sendmail(*PEOPLE, f"Subject: {subject}\n\nWelcome.")
            assert any(f"Subject: {subject}" in kept.read_text() for kept in tmp_path.glob("*.eml"))
    assert len(list(tmp_path.iterdir())) == 2


def test_a_message_that_cannot_be_kept_is_refused_for_now(tmp_path: Path, port: int) -> None:
    tmp_path.rmdir()
    with smtplib.SMTP("127.0.0.1", port) as client, pytest.raises(smtplib.SMTPDataError) as refused:
        client.sendmail(*PEOPLE, "Subject: lost")
    assert refused.value.smtp_code == 451
    tmp_path.mkdir()
