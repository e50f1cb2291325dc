"""Runs calls of isolated tools, one after the other: the main module of a child process.

The worker kills the process at the deadline of a call. If the worker has died, the closed pipe ends it, or a timer of
the kernel, which works even if the interpreter is stuck.
"""

import importlib
import json
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable
from typing import IO, Any

from agents.masked_output import MaskedStream

MARGIN = 5.0  # seconds past the deadline until the kernel ends a call that the worker did not end


def main() -> None:
    """Make calls until the worker closes the pipe."""
    from agents.isolation.processes import OUT

    # Tools and their children can use neither the queue of requests nor the pipe for outcomes.
    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    incoming = os.fdopen(os.dup(0), "rb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    number = int(os.environ.pop(OUT))
    os.set_inheritable(number, False)
    threading.Thread(target=_listen, args=[incoming, requests.put], daemon=True).start()
    out = os.fdopen(number, "wb", buffering=0)
    sys.stdout, sys.stderr = MaskedStream(sys.stdout), MaskedStream(sys.stderr)
    import django

    django.setup()
    for module in json.loads(requests.get())["modules"]:
        importlib.import_module(module)
    out.write(b"ready\n")
    while True:
        message = json.loads(requests.get())
        out.write(json.dumps(_perform(message)).encode() + b"\n")


def _listen(incoming: IO[bytes], put: Callable[[bytes], None]) -> None:
    for line in incoming:
        put(line)
    os.killpg(0, signal.SIGKILL)  # the worker has died or closed the pipe


def _perform(message: dict[str, Any]) -> tuple[str, Any]:
    """Make one call; return the name of the outcome's type and its fields."""
    from django.db import connections

    from agents.isolation.processes import KINDS, REQUEST
    from agents.sdk.spec import ToolSpec
    from agents.tool_calls import call_here

    request = REQUEST.validate_python(message["request"])
    tool = getattr(importlib.import_module(message["module"]), message["tool"], None)
    if not isinstance(tool, ToolSpec):
        return "ToolFailure", {"error": f"{message['module']} has no tool {message['tool']}"}
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, request.deadline + MARGIN)
    try:
        outcome = call_here(tool, message["opened"], request)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        connections.close_all()
    kind = type(outcome).__name__
    return kind, KINDS[kind].dump_python(outcome, mode="json")


if __name__ == "__main__":
    main()
