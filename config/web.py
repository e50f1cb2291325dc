"""`python -m config.web`: the web process, on an address or on an inherited socket."""

import argparse
import asyncio
import gc
import socket
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

if __name__ == "__main__":
    gc.disable()  # before the imports below, as in manage.py; the last lines enable it

from config.asgi import application, live_server
from runtime.core.documents import continuations
from runtime.upkeep import startup

UNREAD_SECONDS = 20.0
SEND_BUFFER = 64 * 1024  # of the kernel, which else takes megabytes of unread answers unseen


class Server(uvicorn.Server):
    """Closes live streams first: otherwise a shutdown would wait until users close their tabs."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Close the live streams, then exit."""
        super().handle_exit(sig, frame)
        asyncio.get_running_loop().call_soon_threadsafe(live_server.close_streams)


class Protocol(HttpToolsProtocol):
    """Ends a connection on which no unread byte moves for UNREAD_SECONDS.

    It also tells the answer under way that the client has gone. uvicorn tells the request that was read last, which may
    wait for that answer: a live page would stay open.
    """

    _watch: asyncio.TimerHandle | None = None
    _current: RequestResponseCycle | None = None

    def on_headers_complete(self) -> None:
        """Remember the request if it is answered at once: no other one is under way."""
        super().on_headers_complete()
        if self._current is None or self._current.response_complete:
            self._current = self.cycle

    def on_response_complete(self) -> None:
        """Remember the request that is answered next."""
        if self.pipeline:
            self._current = self.pipeline[-1][0]
        super().on_response_complete()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Have every byte that the client does not read counted as unread."""
        connection: socket.socket = transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        transport.set_write_buffer_limits(high=0)
        super().connection_made(transport)

    def pause_writing(self) -> None:
        """Watch the unread bytes."""
        super().pause_writing()
        self._watch_unread(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """Stop watching: all bytes are on their way."""
        self._stop_watching()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop watching, and tell the answer under way."""
        self._stop_watching()
        if self._current is not None and not self._current.response_complete:
            self._current.disconnected = True
            self._current.message_event.set()
        super().connection_lost(exc)

    def _watch_unread(self, size: int) -> None:
        self._watch = self.loop.call_later(UNREAD_SECONDS, self._check_unread, size)

    def _check_unread(self, before: int) -> None:
        size = self.transport.get_write_buffer_size()
        if size < before:
            self._watch_unread(size)
        else:
            self.transport.abort()

    def _stop_watching(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None


def main(arguments: Sequence[str]) -> int:
    """Run the web server until a stop signal. Return the exit code."""
    parser = argparse.ArgumentParser(prog="config.web", description=__doc__)
    parser.add_argument(
        "--bind", default="127.0.0.1:8000", help="host:port, or fd://N (default: %(default)s)"
    )
    options = parser.parse_args(arguments)
    binding = _parse_bind(options.bind)
    startup.require_database()
    startup.require_keys(signing=True)
    continuations.prepare()
    serving = build_server(**binding)
    serving.run()
    return 0 if serving.started else 1


def build_server(**binding: Any) -> Server:
    """Build the web server at `host` and `port`, or on the socket `fd`."""
    return Server(
        uvicorn.Config(
            application,
            **binding,
            http=Protocol,
            ws="none",
            log_config=None,
            lifespan="on",
            # No client or proxy is trusted with the origin of requests unless it is configured.
            proxy_headers=False,
            server_header=False,
            backlog=512,
            timeout_keep_alive=15,
            timeout_graceful_shutdown=2,
        )
    )


def _parse_bind(bind: str) -> dict[str, Any]:
    if bind.startswith("fd://"):
        return {"fd": int(bind.removeprefix("fd://"))}
    host, _, port = bind.rpartition(":")
    if not port.isdecimal() or int(port) > 65_535:
        raise SystemExit(f"signoff: --bind must be host:port or fd://N, not {bind!r}")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host.strip("[]"), int(port)), family=family).close()
    except OSError as problem:
        reason = problem.strerror or problem
        raise SystemExit(
            f"signoff: cannot listen on {bind}: {reason}; choose another --bind"
        ) from None
    return {"host": host.strip("[]"), "port": int(port)}


if __name__ == "__main__":
    gc.freeze()
    gc.enable()
    sys.exit(main(sys.argv[1:]))
