"""Runs the process's model calls on one event loop.

Model clients belong to the loop they were first used on; sharing them among the loops of many threads fails. So every
call runs on this loop, in a daemon thread, and waits for its provider there. Hundreds of calls hold no thread.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


class Stopped(Exception):
    """The call was ended by its caller."""


Stop = asyncio.Future[None]


def start_call(call: Callable[[Stop], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Start `call` from any thread, and return at once. The returned function sets its Stop, from any thread."""
    loop = _ensure_loop()
    stop: Stop = loop.create_future()
    asyncio.run_coroutine_threadsafe(call(stop), loop)

    def end() -> None:
        if not stop.done():
            stop.set_result(None)

    def end_soon() -> None:
        loop.call_soon_threadsafe(end)

    return end_soon


async def await_call(seconds: float, call: Coroutine[Any, Any, T], stop: Stop) -> T:
    """Return the result of `call`. Raise TimeoutError or Stopped on time, even if `call` cannot be cancelled."""
    task = asyncio.ensure_future(call)
    # asyncio logs the exception of an abandoned call unless it is read.
    task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    futures: set[asyncio.Future[Any]] = {task, stop}
    try:
        await asyncio.wait(futures, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        ended = task.done()
        task.cancel()
        if ended:
            return task.result()
        raise Stopped if stop.done() else TimeoutError
    finally:
        # The raised exception refers to this frame. If the frame still referred to the task, open streams of the call
        # would stay until the garbage collector runs, in any thread.
        del task, futures


def _ensure_loop() -> asyncio.AbstractEventLoop:
    global _loop
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="models", daemon=True).start()
        return _loop


def _reset() -> None:
    """Forget the loop after a fork: its thread was not copied, and its lock may be held."""
    global _loop, _lock
    _loop, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_reset)
