"""Runs an SMTP sink: it stores each mail as one .eml file before it confirms the mail to the sender."""

import asyncio
import os
import signal
import socket
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

from aiosmtpd.smtp import SMTP, Envelope, Session

LIMIT = 32 * 1024 * 1024


class Mailbox:
    """An aiosmtpd handler that stores messages in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        """Store the mail, and answer 250 once it is on the disk."""
        content = envelope.content or b""
        data = content.encode() if isinstance(content, str) else content
        try:
            await asyncio.to_thread(save, self.folder, data)
        except OSError as error:
            return f"451 cannot keep the message: {error.strerror}"
        return "250 kept"


def save(folder: Path, data: bytes) -> Path:
    """Write one message atomically, so that a power cut leaves no partial file."""
    name = f"{datetime.now(UTC):%Y%m%dT%H%M%S.%f}-{uuid4().hex[:8]}.eml"
    handle, scratch = tempfile.mkstemp(dir=folder, suffix=".part")
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    path = Path(scratch).rename(folder / name)
    directory = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    return path


async def serve(listener: socket.socket, folder: Path) -> None:
    """Receive mail until SIGTERM."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with await listen(listener, folder):
        await stop.wait()


async def listen(listener: socket.socket, folder: Path) -> asyncio.Server:
    """Receive mail on this socket until the server is closed."""
    loop = asyncio.get_running_loop()
    return await loop.create_server(
        lambda: SMTP(Mailbox(folder), data_size_limit=LIMIT, enable_SMTPUTF8=True, loop=loop),
        sock=listener,
    )


if __name__ == "__main__":
    asyncio.run(serve(socket.socket(fileno=int(sys.argv[1])), Path(sys.argv[2])))
