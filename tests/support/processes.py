"""More processes beside those of a running stack, started from the same table with the same environment."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from config.local.processes.users import Account
from config.processes import list_processes
from tests.support import commands, forks
from tests.support.people import until
from tests.support.stack import Stack

SAYS_READY = {"worker": " ready.", "web": "Uvicorn running on"}


class Hand:
    """One process, and the file of everything it said."""

    def __init__(self, pid: int, log: Path) -> None:
        self.process = psutil.Process(pid)
        self.log = log

    @property
    def pid(self) -> int:
        return int(self.process.pid)

    def said(self, text: str) -> int:
        return sum(text in line for line in self.log.read_text(errors="replace").splitlines())

    def wait_for(self, text: str) -> None:
        until(lambda: self.said(text) or None, f"{self.log.name} to say {text!r}")


def of(stack: Stack, kind: str) -> Hand:
    """The stack's own worker, web server or broker."""
    mark = {"worker": "resumed,runs", "web": "config.web", "broker": "--unixsocket"}[kind]
    return Hand(stack.named(mark)[0].pid, stack.home / "logs" / f"{kind}.log")


@contextmanager
def another(stack: Stack, kind: str, name: str, *, bind: str = "", **extra: str) -> Iterator[Hand]:
    """One more process of that kind for as long as the block lasts; it answers when the block begins."""
    like = of(stack, kind).process
    (wanted,) = [one for one in list_processes(bind=bind) if one.name == kind]
    log = stack.home / f"{name}.log"
    environment = like.environ() | extra
    process = forks.start(wanted.command, log, env=environment, account=_account(like))
    hand = Hand(process.pid, log)
    try:
        hand.wait_for(SAYS_READY[kind])
        yield hand
    finally:
        hand.process.resume()
        commands.stop(process)


def _account(like: psutil.Process) -> Account:
    uids, gids = like.uids(), like.gids()
    switch = os.geteuid() != uids.real
    return Account(name=like.username(), uid=uids.real, gid=gids.real, switch=switch)
