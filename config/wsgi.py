"""Builds the WSGI application that `config.asgi` serves."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

application = get_wsgi_application()

# These need the settings.
from runtime.ports import wiring  # noqa: E402
from runtime.store.object_stores.stores import BoundedReads  # noqa: E402

# No read of the object store holds a thread of the web for long.
if (store := wiring.objects()) is not None:
    wiring.plug(objects=BoundedReads(store))
