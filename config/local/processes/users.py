"""Under whose name processes run, and what that name can reach.

Postgres refuses to run as root, and the rest should not. When root starts us, servers run as an
unprivileged account that already exists; nobody else can change accounts, so for everybody else
there is only the starter.
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
    """A user of this machine. `switch` is whether we have to become that user."""

    name: str
    uid: int
    gid: int
    switch: bool

    def popen(self) -> dict[str, Any]:
        """The arguments that make subprocess start something as this account."""
        if not self.switch:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}


def starter() -> Account:
    uid = os.geteuid()
    return Account(name=_name_of(uid), uid=uid, gid=os.getegid(), switch=False)


def unprivileged() -> Account:
    """The starter, unless that is root. Raises Refused if root has nobody to hand over to."""
    if os.geteuid() != 0:
        return starter()
    for name in _UNPRIVILEGED:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(name=name, uid=entry.pw_uid, gid=entry.pw_gid, switch=True)
    raise Refused(f"root cannot run Postgres, and none of {', '.join(_UNPRIVILEGED)} exists here")


def can_access(account: Account, path: Path, mode: int = os.R_OK | os.X_OK) -> bool:
    """Whether the account has `mode` (as for os.access) on `path`, asked as that account."""
    return run_as(account, lambda: os.access(path, mode))


def run_as(account: Account, question: Callable[[], bool]) -> bool:
    """Answer a yes-or-no question in a child process that has become the account."""
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


def give(account: Account, paths: Sequence[Path]) -> None:
    """Make the account the owner of files that we have just made."""
    if account.switch:
        for path in paths:
            os.chown(path, account.uid, account.gid)


def owner_of(path: Path) -> str:
    """Return the name of the account that owns a file or folder."""
    return _name_of(path.stat().st_uid)


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:  # an account without a name, as containers like to have
        return str(uid)
