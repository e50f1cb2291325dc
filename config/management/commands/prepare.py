"""`manage.py prepare`: creates tables, rights, keys and static files before the processes start."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.staticfiles.finders import get_finders
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from config import grants
from runtime.keyring import files, purposes

APPS = ("runtime", "agents", "approvals")  # with migrations of our own
COLLECTED = ".collected"  # in STATIC_ROOT: the hash of the sources


class Command(BaseCommand):
    """Prepares the database, the keys and the static files."""

    help = (
        "Migrate the database, grant roles their rights, make missing keys, collect static files."
        " Safe to repeat."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--without-static",
            action="store_true",
            help="static files were collected before, as they are in the image",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        _require_known_migrations()
        call_command("migrate", interactive=False, verbosity=options["verbosity"])
        if settings.SIGNOFF_WEB_ROLE is not None and settings.SIGNOFF_WORKER_ROLE is not None:
            passwords = {
                settings.SIGNOFF_WEB_ROLE: settings.SIGNOFF_WEB_PASSWORD,
                settings.SIGNOFF_WORKER_ROLE: settings.SIGNOFF_WORKER_PASSWORD,
            }
            try:
                for role, password in passwords.items():
                    if password:
                        grants.ensure_role(role, password)
                grants.grant(web=settings.SIGNOFF_WEB_ROLE, worker=settings.SIGNOFF_WORKER_ROLE)
            except grants.NotGranted as problem:
                raise CommandError(str(problem)) from problem
        for purpose in purposes.PURPOSES:
            files.ensure(purpose)
        files.share_keys()
        if options["without_static"]:
            return
        note = Path(settings.STATIC_ROOT) / COLLECTED
        sources = hashlib.sha256("\n".join(_list_sources()).encode()).hexdigest()
        if not note.exists() or note.read_text() != sources:  # compression takes a second
            note.unlink(missing_ok=True)
            call_command("collectstatic", interactive=False, verbosity=0)
            note.write_text(sources)


def _require_known_migrations() -> None:
    """Raise CommandError if another version has migrated the database in a way that this one does not know."""
    migrations = MigrationLoader(None).disk_migrations
    applied = MigrationRecorder(connection).applied_migrations().keys()
    replaced = (set(migration.replaces) for migration in migrations.values())
    followed = set().union(*(keys for keys in replaced if keys <= applied))
    unknown = sorted(
        ".".join(key) for key in applied - migrations.keys() - followed if key[0] in APPS
    )
    if unknown:
        raise CommandError(
            f"the database was made by another version (its migration {unknown[0]} is unknown here), and cannot be"
            " upgraded. Nothing was changed: keep using that version for it, or start with an empty database"
        )


def _list_sources() -> Iterator[str]:
    """Yield the storage settings, then each file with its size and modification time."""
    yield repr(settings.STORAGES["staticfiles"])
    for finder in get_finders():
        for name, storage in finder.list([]):
            file = Path(storage.path(name)).stat()
            yield f"{name} {file.st_size} {file.st_mtime_ns}"
