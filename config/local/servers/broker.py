"""Runs the embedded broker: a Valkey with an append-only file, on a socket that only its account can open."""

import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import redis

from config.local.errors import DidNotStart, Ended
from config.local.processes import spawn
from config.local.processes.users import Account, chown

START_SECONDS = 20.0
_SOCKET = "broker.sock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """One broker: its program, the folder of its data, the folder of its socket, and its account."""

    program: Path
    data: Path
    socket: Path
    account: Account
    mark: str = ""

    def url(self) -> str:
        """Return the REDIS_URL of this broker."""
        return build_broker_url(self.socket)


def build_broker_url(socket: Path) -> str:
    """Return the REDIS_URL of the broker whose socket is in this folder."""
    return f"unix://{socket / _SOCKET}"


def start(
    broker: Broker, log: IO[bytes] | int, pause: Callable[[float], None] = time.sleep
) -> subprocess.Popen[bytes]:
    """Start the server and wait until it answers. `pause` waits between two attempts."""
    if not broker.data.exists():
        broker.data.mkdir(mode=0o700)
        chown(broker.account, [broker.data])
    (broker.socket / _SOCKET).unlink(missing_ok=True)
    settings = {
        "--port": "0",  # no network at all
        "--unixsocket": str(broker.socket / _SOCKET),
        "--unixsocketperm": "700",
        "--dir": str(broker.data),
        "--daemonize": "no",
        "--set-proc-title": "no",  # it would overwrite the mark in its environment
        "--appendonly": "yes",  # without it a kill -9 loses every waiting message
        "--appendfsync": "everysec",
        "--maxmemory-policy": "noeviction",  # a queue must never drop messages to free memory
        "--enable-debug-command": "no",
        "--enable-module-command": "no",
        "--save": "",
    }
    process = spawn.start(
        [broker.program, *(part for name, value in settings.items() for part in (name, value))],
        account=broker.account,
        environment=spawn.build_plain_environment() | {spawn.MARK: broker.mark},
        folder=broker.data,
        log=log,
        when_we_die=signal.SIGTERM,
    )
    try:
        _wait(broker, process, pause)
    except BaseException:
        stop(process)
        raise
    return process


def _wait(broker: Broker, process: subprocess.Popen[bytes], pause: Callable[[float], None]) -> None:
    """Wait until the broker answers, which it does after reading its file."""
    deadline = time.monotonic() + START_SECONDS
    with redis.Redis.from_url(broker.url(), socket_timeout=2) as client:
        while True:
            try:
                client.ping()
            except redis.RedisError as error:
                if process.poll() is not None:
                    raise Ended(f"the broker ended: {spawn.describe_end(process)}") from error
                if time.monotonic() > deadline:
                    raise DidNotStart(f"the broker did not start: {error}") from error
            else:
                return
            pause(0.01)


def stop(process: subprocess.Popen[bytes], stop_timeout: float = 2.0) -> None:
    """Stop the broker, then kill it: the state is in Postgres."""
    process.terminate()
    try:
        process.wait(stop_timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
