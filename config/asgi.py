"""Serves the web as one ASGI application: Django answers in threads, live updates in the event loop.

Django's views are synchronous, so each request needs a thread. It gets one when its body is complete, so a slow
sender costs memory and no thread.
"""

import asyncio
import os
from typing import Any

from a2wsgi import WSGIMiddleware
from django.conf import settings
from django.core.wsgi import get_wsgi_application

from config import longpoll

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

_wsgi: Any = get_wsgi_application()  # the two libraries type the same interface differently

# These need the settings.
from runtime.ports import wiring  # noqa: E402
from runtime.store.object_stores.stores import BoundedReads  # noqa: E402
from runtime.web.live import LiveServer, Message, Receive, Send  # noqa: E402

# No read of the object store holds a thread of the web for long.
if (store := wiring.find_object_store()) is not None:
    wiring.plug(objects=BoundedReads(store))

THREADS = 8
BODY_SECONDS = 30.0
LIVE_PATH = "/events/"

live_server = LiveServer()
_django: Any = WSGIMiddleware(_wsgi, workers=THREADS)


async def application(scope: Message, receive: Receive, send: Send) -> None:
    """Pass a connection to Django, to the live updates or to the process's own start and end."""
    if scope["type"] == "lifespan":
        await receive()
        live_server.open()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await live_server.close()
        await send({"type": "lifespan.shutdown.complete"})
    elif scope["type"] == "http" and scope["path"] == LIVE_PATH:
        await live_server(scope, receive, send)
    elif scope["type"] == "http":
        await _send_answer(scope, receive, send)
    else:
        await send({"type": "websocket.close", "code": 1000})


async def _send_answer(scope: Message, receive: Receive, send: Send) -> None:
    try:
        async with asyncio.timeout(BODY_SECONDS):
            body = await _read_body(receive)
    except TimeoutError:
        await _refuse(send, 408, b"The request did not arrive in time.")
        return
    if body is None:
        return  # the client has disconnected
    if not scope["query_string"].isascii():
        await _refuse(send, 400, b"The address contains characters that are not encoded.")
        return

    dropped = {b"content-length", b"transfer-encoding", *longpoll.OURS}
    # WSGI cannot tell `-` from `_`.
    headers = [
        *(
            (name, value)
            for name, value in scope["headers"]
            if name not in dropped and b"_" not in name
        ),
        (b"content-length", str(len(body)).encode()),
    ]

    async def ask(send: Send, extra: longpoll.Headers) -> None:
        messages = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def replay() -> Message:
            return next(messages, {"type": "http.disconnect"})

        await _django({**scope, "headers": [*headers, *extra]}, replay, send)

    run = longpoll.find_run(scope)
    if run is not None or longpoll.GATEWAYS.fullmatch(f"{scope['method']} {scope['path']}"):
        await longpoll.send_answer(run, ask, _wait_for_disconnect(receive), live_server, send)
    else:
        await ask(send, [])


async def _wait_for_disconnect(receive: Receive) -> None:
    """Wait until the client disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _read_body(receive: Receive) -> bytes | None:
    """Return the body, None if the client disconnects. A body over Django's limit is cut, and Django refuses it."""
    body = bytearray()
    while len(body) <= settings.DATA_UPLOAD_MAX_MEMORY_SIZE:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    return bytes(body)


async def _refuse(send: Send, status: int, text: bytes) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text})
