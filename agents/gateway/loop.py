"""The one event loop of this process that model calls run on.

Model clients belong to the loop they were first used on; sharing them among the loops of many
threads fails. So every thread hands its call to this one, which runs in a daemon thread.
"""

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

# What a call gets on top of its deadline before it is given up from outside: only code that blocks
# the loop, or a script that never returns, needs it.
GRACE = 1.0

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def run(call: Coroutine[Any, Any, T], *, deadline: float) -> T:
    """Run `call` from any thread and wait for it. Raises TimeoutError after `deadline` seconds."""
    future = asyncio.run_coroutine_threadsafe(_bounded(call, deadline), _running_loop())
    try:
        return future.result(deadline + GRACE)
    except TimeoutError:
        future.cancel()
        raise


async def _bounded(call: Coroutine[Any, Any, T], deadline: float) -> T:
    async with asyncio.timeout(deadline):
        return await call


def _running_loop() -> asyncio.AbstractEventLoop:
    global _loop
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="models", daemon=True).start()
        return _loop


def _forget() -> None:
    """A fork copies the loop but not its thread, and perhaps the lock while it is held."""
    global _loop, _lock
    _loop, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget)
