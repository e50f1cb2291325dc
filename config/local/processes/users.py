"""Chooses the account that processes run as, and tells which files it can reach.

Postgres refuses to run as root, and other processes should not. If root starts the launcher, the servers run as an
existing unprivileged account. Only root can change accounts, so otherwise all processes run as the starter.
"""

import os
import pwd
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from config.local.errors import Refused

_UNPRIVILEGED = ("postgres", "daemon", "nobody")


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A user of this machine. `switch` tells whether a process must change to that user."""

    name: str
    uid: int
    gid: int
    switch: bool

    def build_popen_arguments(self) -> dict[str, Any]:
        """Return the arguments with which subprocess starts a program as this account."""
        if not self.switch:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}


def read_starter_account() -> Account:
    """Return the account of the starter."""
    uid = os.geteuid()
    return Account(name=_name_account(uid), uid=uid, gid=os.getegid(), switch=False)


def find_unprivileged_account() -> Account:
    """Return the starter, or an unprivileged account for root. Raise Refused if root finds no such account."""
    if os.geteuid() != 0:
        return read_starter_account()
    for name in _UNPRIVILEGED:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(name=name, uid=entry.pw_uid, gid=entry.pw_gid, switch=True)
    raise Refused(f"root cannot run Postgres, and none of {', '.join(_UNPRIVILEGED)} exists here")


def can_access(account: Account, path: Path, mode: int = os.R_OK | os.X_OK) -> bool:
    """Return whether the account has `mode` (as for os.access) on `path`, checked as that account."""
    return run_as(account, lambda: os.access(path, mode))


def run_as(account: Account, question: Callable[[], bool]) -> bool:
    """Run a check in a child process that has changed to the account."""
    if not account.switch:
        return question()
    child = os.fork()
    if child == 0:
        answer = False
        try:
            os.setgroups([])
            os.setgid(account.gid)
            os.setuid(account.uid)
            answer = question()
        finally:
            os._exit(0 if answer else 1)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == 0


def chown(account: Account, paths: Sequence[Path]) -> None:
    """Make the account the owner of newly made files."""
    if account.switch:
        for path in paths:
            os.chown(path, account.uid, account.gid)


def name_owner(path: Path) -> str:
    """Return the name of the account that owns a file or folder."""
    return _name_account(path.stat().st_uid)


def _name_account(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:  # an account without a name, common in containers
        return str(uid)
