#!/usr/bin/env python3
"""Runs Django's command line with this project's settings; an expected error is one line without a traceback."""

import gc
import os
import sys

if __name__ == "__main__":
    gc.disable()  # before the imports below; fetch_command enables it

from django.core.exceptions import ImproperlyConfigured
from django.core.management import ManagementUtility
from django.core.management.base import BaseCommand
from django.db import DatabaseError


class CommandLine(ManagementUtility):
    """Django's command line. While it imports, Python does not collect garbage, a third of the time of a start."""

    def fetch_command(self, subcommand: str) -> BaseCommand:
        """Return a command, and collect garbage from here on."""
        command = super().fetch_command(subcommand)
        gc.freeze()
        gc.enable()
        return command


def main(arguments: list[str]) -> None:
    """Run the command; end with one line for an invalid setting or an unreachable database."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    try:
        CommandLine(arguments).execute()
    except DatabaseError as problem:
        from runtime.upkeep import startup

        raise SystemExit(f"signoff: {startup.explain_problem(problem)}") from None
    except (ImproperlyConfigured, OSError) as problem:
        raise SystemExit(f"signoff: {' '.join(str(problem).split())}") from None


if __name__ == "__main__":
    main(sys.argv)
