"""Opens sockets on loopback. They are bound before their port is announced, and stay open across server restarts."""

import errno
import ipaddress
import os
import socket

from config.local.errors import Refused

FIRST_PORT = 8000
TRIED = 100


def listen_for_web(host: str, port: int | None) -> socket.socket:
    """Listen on the requested port, else on the first free one from 8000. Raise Refused if it is taken."""
    if port is not None:
        return _listen(host, port)
    for candidate in range(FIRST_PORT, FIRST_PORT + TRIED):
        try:
            return _listen(host, candidate)
        except Refused:
            continue
    return _listen(host, 0)


def listen_on_any_port(preferred: int | None) -> socket.socket:
    """Listen on the preferred port if it is free, else on any."""
    try:
        return _listen("127.0.0.1", preferred or 0)
    except Refused:
        return _listen("127.0.0.1", 0)


def read_port(listener: socket.socket) -> int:
    """Return the port of a listening socket."""
    port: int = listener.getsockname()[1]
    return port


def require_loopback(host: str) -> None:
    """Raise Refused for an address that other machines can reach: the demo people are for this machine only."""
    try:
        local = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        local = False
    if not local:
        raise Refused(f"{host} is not a loopback address, and the demo people are for this machine")


def _listen(host: str, port: int) -> socket.socket:
    if not 0 <= port <= 65535:
        raise Refused(f"{port} is not a port")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=512)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise Refused(f"port {port} is taken: choose another with PORT=…") from error
        reason = os.strerror(error.errno or 0)
        raise Refused(
            f"port {port} cannot be used ({reason}): choose another with PORT=…"
        ) from error
