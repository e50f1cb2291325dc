"""A provider that takes its time: hundreds of requests may wait in it at once."""

import json
import threading
from typing import Any

from agents.registry import Registry
from tests.support.provider.faults import Fault
from tests.support.provider.protocol import completion_of
from tests.support.provider.server import Provider

STEPS = 4  # calls of the tool before the last word


class SlowProvider(Provider):
    """Every answer takes `seconds`; its model counts up by the tool `step` until `steps` are done, then says so.

    `asked` is how many requests came. While `refuses` is set, they are told to come back in a minute.
    """

    def __init__(self, seconds: float = 0.0, *, steps: int = STEPS) -> None:
        super().__init__(Registry(agents={}))
        self.seconds = seconds
        self.steps = steps
        self.refuses = False
        self.retry_after = 60.0
        self.asked = self.waiting = 0
        self._changed = threading.Condition()
        self._open = threading.Event()
        self._open.set()

    def hold(self) -> None:
        """Hold the first answer of every conversation until `release`. Conversations that have begun continue."""
        self._open.clear()

    def release(self) -> None:
        self._open.set()

    def wait_for(self, number: int, seconds: float) -> bool:
        """Wait until so many requests wait at once. Return False after the timeout."""
        with self._changed:
            return self._changed.wait_for(lambda: self.waiting >= number, seconds)

    def answer(self, body: dict[str, Any]) -> tuple[Fault | None, dict[str, Any]]:
        done = sum(message["role"] == "tool" for message in body["messages"])
        self._count(1)
        self.wait(self.seconds)
        if not done:
            self._open.wait()
        self._count(-1)
        message: dict[str, Any] = {"role": "assistant", "content": "Done."}
        if done < self.steps:
            function = {"name": "step", "arguments": json.dumps({"number": done})}
            call = {"id": f"call_{done}", "type": "function", "function": function}
            message = {"role": "assistant", "content": None, "tool_calls": [call]}
        with self._lock:
            self.bodies.append(body)
            fault = Fault.RATE_LIMIT if self.refuses else self._next_fault(message)
        return fault, completion_of(message, body["model"])

    def _count(self, change: int) -> None:
        with self._changed:
            self.waiting += change
            self.asked += max(0, change)
            self._changed.notify_all()
