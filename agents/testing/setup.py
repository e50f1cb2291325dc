"""Sets up a run in memory: settings, and keys if an agent keeps secrets."""

import os
import tempfile
from functools import cache
from pathlib import Path

import django
from django.apps import apps
from django.conf import settings

from runtime.keyring import files, purposes


def configure() -> None:
    """Set Django up, unless it is set up already."""
    if not settings.configured:
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    if not apps.ready:
        django.setup()


def prepare(*, secrets: bool) -> None:
    """Configure Django, and make a key for secrets if it is needed and missing."""
    configure()
    if (
        secrets
        and not (Path(settings.KEYS_DIR) / files.name_shared_file(purposes.SECRETS)).exists()
    ):
        settings.KEYS_DIR = Path(_make_keys_folder().name)
        files.ensure(purposes.SECRETS)


@cache
def _make_keys_folder() -> "tempfile.TemporaryDirectory[str]":
    """Make a folder that is deleted when the process ends."""
    return tempfile.TemporaryDirectory(prefix="signoff-keys-")
