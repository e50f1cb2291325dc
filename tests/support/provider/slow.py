"""A provider that takes its time, on one event loop: hundreds of requests may wait in it at once.

As a process of its own it prints its base URL, and answers until its standard input ends. Its model counts up by the
tool `step` until every step is done, then says so.
"""

import asyncio
import json
import sys
import threading
from typing import Any, Self

from tests.support.provider.protocol import completion_of
from tests.support.provider.streaming import events_of

STEPS = 4  # calls of the tool before the last word

_REFUSAL = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 60\r\nContent-Length: 0\r\n\r\n"
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n"


class SlowProvider:
    """Serves between enter and exit. Every answer takes `seconds`; a conversation has `steps` before its end.

    `asked` is how many requests came. While `refuses` is set, they are told to come back in a minute.
    """

    def __init__(self, seconds: float = 0.0, *, steps: int = STEPS) -> None:
        self.seconds = seconds
        self.steps = steps
        self.refuses = False
        self.asked = self.waiting = 0
        self.url = ""
        self._changed = threading.Condition()
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._open = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="slow provider", daemon=True)
        self._open.set()

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def hold(self) -> None:
        """Hold the first answer of every conversation until `release`. Conversations that have begun continue."""
        self._loop.call_soon_threadsafe(self._open.clear)

    def release(self) -> None:
        self._loop.call_soon_threadsafe(self._open.set)

    def wait_for(self, number: int, seconds: float) -> bool:
        """Wait until so many requests wait at once. Return False after the timeout."""
        with self._changed:
            return self._changed.wait_for(lambda: self.waiting >= number, seconds)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(
            asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=1024)
        )
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        self._ready.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
                body = json.loads(await reader.readexactly(length))
                self._count(1)
                await asyncio.sleep(self.seconds)
                done = sum(message["role"] == "tool" for message in body["messages"])
                if not done:
                    await self._open.wait()
                self._count(-1)
                answer = _answer(body["model"], done, self.steps)
                writer.write(_REFUSAL if self.refuses else _HEAD % len(answer) + answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the client is gone, or this provider is
        finally:
            writer.close()

    def _count(self, change: int) -> None:
        with self._changed:
            self.waiting += change
            self.asked += max(0, change)
            self._changed.notify_all()


def _answer(model: str, done: int, steps: int) -> bytes:
    """The stream of a reply: the next step, or after the last one the last word."""
    message: dict[str, Any] = {"role": "assistant", "content": "Done."}
    if done < steps:
        function = {"name": "step", "arguments": json.dumps({"number": done})}
        call = {"id": f"call_{done}", "type": "function", "function": function}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
    return b"".join(events_of(completion_of(message, model)))


def main(seconds: str) -> None:
    with SlowProvider(float(seconds)) as provider:
        print(provider.url, flush=True)  # noqa: T201
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
