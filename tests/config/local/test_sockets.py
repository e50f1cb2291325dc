"""Ports on loopback: the requested one or an error, else the first free one."""

import socket

import pytest

from config.local.errors import Refused
from config.local.processes import sockets


def test_a_requested_port_is_taken_or_refused_else_the_next_free_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = sockets.port_of(taken)
        with pytest.raises(Refused, match=f"^port {port} is taken: choose another with PORT="):
            sockets.web("127.0.0.1", port)
    with pytest.raises(Refused):
        sockets.web("127.0.0.1", 70_000)
    with sockets.web("127.0.0.1", None) as one, sockets.web("127.0.0.1", None) as two:
        assert sockets.FIRST_PORT <= sockets.port_of(one) < sockets.port_of(two)


def test_the_port_of_the_last_start_is_taken_again_if_it_is_free() -> None:
    with sockets.any_port(None) as first:
        port = sockets.port_of(first)
        with sockets.any_port(port) as other:
            assert sockets.port_of(other) != port
    with sockets.any_port(port) as again:
        assert sockets.port_of(again) == port


def test_an_address_that_others_can_reach_is_refused() -> None:
    for host in ("127.0.0.2", "::1", "localhost"):
        sockets.require_loopback(host)
    for host in ("0.0.0.0", "::", "192.0.2.1", "abeyance.example", ""):  # noqa: S104
        with pytest.raises(Refused):
            sockets.require_loopback(host)
