"""Creates the demo people of one machine and writes their secrets to a file for the starter.

One transaction creates them and commits after the file is written. So if a start is killed, all existing demo people
have their secrets in the file.
"""

import json
import os
import secrets
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import django

from config.local import data_dir
from config.local.processes.sockets import require_loopback

# Ada is a reviewer too, so only the four-eyes rule stops her from approving her own runs.
PEOPLE: dict[str, tuple[str, ...]] = {
    "ada": ("requesters", "reviewers"),
    "bea": ("reviewers",),
    "cyril": (),
    "admin": ("admins",),
}


def create_demo(path: Path, about: dict[str, Any]) -> bool:
    """Create the demo people unless the database has users. Return whether it created them.

    `about` holds further fields of the file at `path`.
    """
    from django.contrib.auth.models import User
    from django.db import transaction

    from approvals.people import accounts, tokens
    from approvals.rights.principals import ALL_SCOPES
    from approvals.rules.policy import Group

    with transaction.atomic():
        if User.objects.exists():
            return False
        users = {}
        for name, groups in PEOPLE.items():
            password = secrets.token_urlsafe(12)
            person = accounts.create_person(
                username=name, password=password, groups=[Group(group) for group in groups]
            )
            _, token = tokens.create(person, ALL_SCOPES)
            users[name] = {"password": password, "token": token}
        data_dir.write(path, {"url": about["url"], "users": users, **about})
    return True


def revoke_demo(addresses: dict[str, str]) -> None:
    """Revoke the access of the file's people: the token with this public id, the password and all sessions."""
    from django.db import transaction

    from approvals.errors import UnknownPerson, UnknownToken
    from approvals.people import accounts, tokens

    with transaction.atomic():
        for name, public_id in addresses.items():
            with suppress(UnknownToken):
                tokens.revoke(public_id, actor=None)
            with suppress(UnknownPerson):
                accounts.remove_password(name, actor=None)


def update_addresses(path: Path, *, url: str, scim_url: str) -> dict[str, Any] | None:
    """Update the addresses in the file. Return its content, or None if it does not exist."""
    if not path.exists():
        return None
    credentials = data_dir.read(path)
    missing = {"url", "users", "scim", "mail"} - set(credentials)
    if missing:
        raise data_dir.make_damage_error(path, f"it lacks {', '.join(sorted(missing))}")
    if (credentials["url"], credentials["scim"]["url"]) != (url, scim_url):
        credentials["url"] = url
        credentials["scim"]["url"] = scim_url
        data_dir.write(path, credentials)
    return credentials


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    document = json.load(sys.stdin)
    django.setup()
    if sys.argv[1] == "--withdraw":
        revoke_demo(document)
    else:
        require_loopback(document.pop("host"))
        create_demo(Path(sys.argv[1]), document)
