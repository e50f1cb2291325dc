#!/usr/bin/env python3
"""Runs Django's command line with this project's settings; an expected error is one line without a traceback."""

import os
import sys

from django.core.exceptions import ImproperlyConfigured
from django.core.management import execute_from_command_line
from django.db import DatabaseError


def main(arguments: list[str]) -> None:
    """Run the command; end with one line for an invalid setting or an unreachable database."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    try:
        execute_from_command_line(arguments)
    except DatabaseError as problem:
        from runtime.upkeep import startup

        raise SystemExit(f"abeyance: {startup.explained(problem)}") from None
    except (ImproperlyConfigured, OSError) as problem:
        raise SystemExit(f"abeyance: {' '.join(str(problem).split())}") from None


if __name__ == "__main__":
    main(sys.argv)
