"""Builds the WSGI application that `config.asgi` serves."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

application = get_wsgi_application()

from config import wiring  # noqa: E402 - needs the settings

wiring.bound_reads()
