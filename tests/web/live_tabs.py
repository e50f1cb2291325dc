"""Runs the live updates of a web process in a loop of its own, with tabs that receive them."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Self

from django.conf import settings
from django.test import Client

from runtime.web.live import LiveServer, Message

WITHIN = 60.0


class Tab:
    """One open page with the messages from the server until it ended the stream."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.text = ""
        self.ended = False
        self._changed = threading.Condition()

    def wait(self, reached: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(reached, WITHIN), (self.status, self.text, self.ended)

    async def hear(self, message: Message) -> None:
        with self._changed:
            self.status = message.get("status", self.status)
            self.text += message.get("body", b"").decode()
            self.ended |= message["type"] == "http.response.body" and not message.get("more_body")
            self._changed.notify_all()


class House:
    """A running live server. Close it before the database is flushed."""

    def __enter__(self) -> Self:
        self.live_server = LiveServer()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._soon(self._opened())
        return self

    def __exit__(self, *_: object) -> None:
        self._soon(self._closed())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WITHIN)
        self._loop.close()

    def open(self, client: Client | None, method: str = "GET", **headers: str) -> Tab:
        """A tab with the session of this client; back when the server has answered."""
        tab = Tab()
        morsel = client.cookies.get(settings.SESSION_COOKIE_NAME) if client else None
        cookie = f"{settings.SESSION_COOKIE_NAME}={morsel.value if morsel else ''}"
        sent = {"cookie": cookie} | {name.replace("_", "-"): v for name, v in headers.items()}
        scope = {
            "type": "http",
            "method": method,
            "path": "/events/",
            "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
        }
        asyncio.run_coroutine_threadsafe(self.live_server(scope, _never, tab.hear), self._loop)
        tab.wait(lambda: tab.status is not None and (tab.ended or tab.text != ""))
        return tab

    def _soon(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(WITHIN)

    async def _opened(self) -> None:
        self.live_server.open()
        with suppress(TimeoutError):
            async with asyncio.timeout(5):
                await self.live_server.connected.wait()

    async def _closed(self) -> None:
        await self.live_server.close()


async def _never() -> Message:
    await asyncio.Event().wait()
    raise AssertionError
