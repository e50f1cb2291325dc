"""Runs isolated tools in processes of their own, which are killed at the deadline of their call.

A child takes one call after the other and is kept for the next one. Requests and outcomes are lines of JSON on two
pipes; a tool prints to the worker's output. A child leads a process group, so the processes that it started die with
it. It ends when its worker does, because its pipe is closed then.
"""

import json
import logging
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any, get_args

from pydantic import TypeAdapter

from agents.sdk.spec import ToolSpec
from runtime.core.values.enums import FailureCause
from runtime.ports.effects import Outcome, ToolFailure, ToolRequest, Unknown

log = logging.getLogger(__name__)

KEPT = 4  # idle children; more are ended
OUT = "SIGNOFF_CHILD_OUT"  # names the descriptor of the pipe for outcomes
READY = b"ready\n"
REAP_SECONDS = 1.0

REQUEST: TypeAdapter[ToolRequest] = TypeAdapter(ToolRequest)
KINDS: dict[str, TypeAdapter[Any]] = {
    kind.__name__: TypeAdapter(kind) for kind in get_args(Outcome)
}


class Children:
    """The child processes of one worker process. `modules` are those of its isolated tools, loaded in advance."""

    def __init__(self, modules: Iterable[str] = ()) -> None:
        self._modules = sorted(set(modules))
        self._lock = threading.Lock()
        self._idle: list[Child] = [Child(self._modules)] if self._modules else []

    def perform(self, tool: ToolSpec, unsealed: Any, request: ToolRequest) -> Outcome:
        """Call the tool in a child. Never raise: a late or dead child is an outcome too."""
        ends = time.monotonic() + request.deadline
        child = self._acquire()
        if not child.is_ready(ends):
            child.kill()
            error = f"the process for {tool.name} did not start: look at the worker's log"
            log.error("Call %s waits: %s", request.key, error)
            return ToolFailure(error=error, retryable=True, cause=FailureCause.WORKER)
        request = replace(request, deadline=max(0.1, ends - time.monotonic()))
        outcome = child.perform(tool, unsealed, request, ends)
        if outcome is not None:
            self._release(child)
            return outcome
        late = time.monotonic() >= ends
        code = child.kill()
        if self._modules:
            self._release(Child(self._modules))  # or the next call waits for a new one
        if late:
            error = f"{tool.name} did not end by its deadline, and its process was killed"
            return Unknown(error=error, cause=FailureCause.TIME)
        how = f"exit code {code}"
        if code is not None and code < 0:
            with suppress(ValueError):
                how = signal.Signals(-code).name
        error = f"the process of {tool.name} ended ({how}) before it reported an outcome"
        return Unknown(error=error, cause=FailureCause.TOOL)

    def _acquire(self) -> "Child":
        with self._lock:
            while self._idle:
                child = self._idle.pop()
                if child.is_alive():
                    return child
        return Child(self._modules)

    def _release(self, child: "Child") -> None:
        with self._lock:
            if len(self._idle) < KEPT:
                self._idle.append(child)
                return
        child.kill()

    def close(self) -> None:
        """Kill the idle children."""
        with self._lock:
            idle, self._idle = self._idle, []
        for child in idle:
            child.kill()


class Child:
    """One child process, used by one thread at a time."""

    def __init__(self, modules: Iterable[str]) -> None:
        self._replies, writes = os.pipe()
        self._read = b""
        self._ready = False
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "agents.isolation.child"],
                env={**os.environ, OUT: str(writes), "PYTHONPATH": os.pathsep.join(sys.path)},
                stdin=subprocess.PIPE,
                pass_fds=[writes],
                start_new_session=True,
            )
        finally:
            os.close(writes)
        self._send({"modules": list(modules)})

    def is_alive(self) -> bool:
        """Say whether the process is alive."""
        return self._process.poll() is None

    def is_ready(self, ends: float) -> bool:
        """Wait until the child has loaded its modules; False if it has not by then."""
        self._ready = self._ready or self._line(ends) == READY
        return self._ready

    def perform(
        self, tool: ToolSpec, unsealed: Any, request: ToolRequest, ends: float
    ) -> Outcome | None:
        """Return the outcome of a call, or None if the child does not answer in time."""
        self._send(
            {
                "module": tool.function.__module__,
                "tool": tool.function.__qualname__,
                "opened": unsealed,
                "request": REQUEST.dump_python(request, mode="json"),
            }
        )
        line = self._line(ends)
        if line is None:
            return None
        kind, fields = json.loads(line)
        outcome: Outcome = KINDS[kind].validate_python(fields)
        return outcome

    def kill(self) -> int | None:
        """Kill the child and the processes that it started. Return its exit code, None if it does not end."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        os.close(self._replies)
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(REAP_SECONDS)
        return None

    def _send(self, message: dict[str, Any]) -> None:
        """Send a message. If the child has died, the reader of its answer notices."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()

    def _line(self, ends: float) -> bytes | None:
        """Return the next line that the child writes, or None if it ends or `ends` has passed."""
        poll = select.poll()
        poll.register(self._replies, select.POLLIN)
        while b"\n" not in self._read:
            seconds_left = ends - time.monotonic()
            if seconds_left <= 0 or not poll.poll(seconds_left * 1000):
                return None
            chunk = os.read(self._replies, 65_536)
            if not chunk:
                return None
            self._read += chunk
        line, _, self._read = self._read.partition(b"\n")
        return line + b"\n"
