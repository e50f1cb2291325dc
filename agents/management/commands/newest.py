"""The old name of `promote_version`. It works for one release, with a warning."""

import logging
from typing import Any

from agents.management.commands import promote_version

log = logging.getLogger(__name__)


class Command(promote_version.Command):
    """The old name of promote_version."""

    help = "The old name of promote_version."

    def handle(self, *args: Any, **options: Any) -> None:
        """Warn, then promote the version."""
        log.warning(
            "manage.py newest is now promote_version; the old name goes with the next release"
        )
        super().handle(*args, **options)
