"""Who is there at a start: the demo people, nobody, or demo people who had to give back what their file told.

Whoever deletes credentials.json says that nobody shall get in with it any more. So its addresses in
the database are remembered beside it: at the next start the tokens that were in it are revoked, and
the people who were in it are left without a password and without a session. That holds also for
whoever has chosen another password since, because without the file nobody can tell. The people stay,
as do the runs they started and what they decided; `make manage` gives them new passwords.
"""

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from config.env import environment
from config.local import data_dir as homes
from config.local import demo_people
from config.local.app_environment import scim_token
from config.local.data_dir import DataDir
from config.local.errors import DidNotStart, Refused
from config.local.services import Stack

Say = Callable[[str], None]


def check(folder: Path, wanted: bool | None) -> None:
    """Raise Refused for a demo's folder that shall be used without one. `wanted` is None if nobody said."""
    path = folder / "credentials.json"
    if wanted is False and path.exists():
        raise Refused(
            f"{path} belongs to a demo: delete it, which ends its tokens and passwords,"
            " or choose another folder with HOME_DIR=…"
        )


def ensure_demo(stack: Stack, host: str, wanted: bool | None, say: Say) -> dict[str, Any] | None:
    """What the file of the demo people holds, None where there is none. No demo once stays no demo."""
    home = stack.home
    remembered = home.get("demo_people")
    if home.credentials.exists():
        pass
    elif remembered is not None:
        _revoke(stack, remembered, say)
        home.set(demo=False, demo_people=None)
    elif wanted is False or (wanted is None and home.get("demo") is False):
        home.set(demo=False)
    else:
        say("Making the demo people")
        _run(stack, [str(home.credentials)], _about(stack, host))
        home.set(demo=True)
    known = demo_people.keep_current(home.credentials, url=stack.url, scim_url=stack.scim_url)
    if known is not None:
        home.set(demo_people=_addresses(known))
    return known


def next_step(home: DataDir) -> str:
    """The line that makes the first admin, as it is typed for this folder."""
    return _typed(home, "people add NAME --group admins")


def _revoke(stack: Stack, remembered: dict[str, str], say: Say) -> None:
    _run(stack, ["--withdraw"], remembered)
    names = ", ".join(remembered)
    say(
        f"credentials.json is gone, so what was in it has ended: the tokens, passwords and sessions of {names}."
        f" They stay, and get new passwords with {_typed(stack.home, 'people password NAME')}"
    )


def _addresses(known: dict[str, Any]) -> dict[str, str]:
    """The public id of each person's token."""
    return {name: person["token"].split("_")[1] for name, person in known["users"].items()}


def _about(stack: Stack, host: str) -> dict[str, Any]:
    real_directory = bool(stack.given.get("SCIM_URL"))
    real_mail = bool(stack.given.get("EMAIL_URL"))
    return {
        "host": host,
        "url": stack.url,
        "scim": {
            "url": stack.scim_url,
            "token": None if real_directory else scim_token(stack.home, stack.given),
        },
        "mail": {"folder": None if real_mail else str(stack.home.folder / "mail")},
    }


def _run(stack: Stack, arguments: list[str], told: dict[str, Any]) -> None:
    """In a process of the starter's, because the file is for the starter alone."""
    done = subprocess.run(
        [sys.executable, "-m", "config.local.demo_people", *arguments],
        input=json.dumps(told),
        capture_output=True,
        text=True,
        cwd=environment.ROOT,
        env=stack.environment(),
        check=False,
    )
    if done.returncode:
        raise DidNotStart(
            f"the demo people are not as they should be: {done.stderr.strip()[-500:]}"
        )


def _typed(home: DataDir, command: str) -> str:
    where = "" if home.folder == homes.default() else f"HOME_DIR={shlex.quote(str(home.folder))} "
    return f'make manage {where}CMD="{command}"'
