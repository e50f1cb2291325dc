"""The one event loop of this process that model calls run on.

Model clients belong to the loop they were first used on; sharing them among the loops of many
threads fails. So every call is handed to this one, which runs in a daemon thread, and waits for
its provider there: hundreds of calls hold no thread.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


class Stopped(Exception):
    """Somebody ended the call."""


Stop = asyncio.Future[None]


def begin(call: Callable[[Stop], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run `call` from any thread, without waiting for it. What is returned sets its Stop, from any thread."""
    running = _running_loop()
    stop: Stop = running.create_future()

    def end() -> None:
        if not stop.done():
            stop.set_result(None)

    asyncio.run_coroutine_threadsafe(call(stop), running)

    def set_stop() -> None:
        running.call_soon_threadsafe(end)

    return set_stop


async def within(seconds: float, call: Coroutine[Any, Any, T], stop: Stop) -> T:
    """What `call` returns. Raises TimeoutError or Stopped on time, even if `call` cannot be cancelled."""
    task = asyncio.ensure_future(call)
    task.add_done_callback(_hear)
    waited: set[asyncio.Future[Any]] = {task, stop}
    try:
        await asyncio.wait(waited, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        ended = task.done()
        task.cancel()
        if ended:
            return task.result()
        raise Stopped if stop.done() else TimeoutError
    finally:
        # What was raised knows this frame: if it knew the task, whose exception it is, only a collection in whichever
        # thread would end the streams that the call left open.
        del task, waited


def _hear(task: "asyncio.Task[Any]") -> None:
    """What a call raises after nobody waits for it any more is no news."""
    with suppress(asyncio.CancelledError):
        task.exception()


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
