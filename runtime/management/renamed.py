"""Commands under their old names. They work for one release, with a warning."""

import logging
from typing import Any

from django.core.management.base import BaseCommand

log = logging.getLogger(__name__)


def old_name(old: str, new: str, command: type[BaseCommand]) -> type[BaseCommand]:
    """Return the command as it works under its old name."""

    class Command(command):  # type: ignore[valid-type, misc]
        help = f"The old name of {new}."

        def handle(self, *args: Any, **options: Any) -> None:
            log.warning("manage.py %s is now %s; the old name goes with the next release", old, new)
            super().handle(*args, **options)

    return Command
