"""The process of isolated tools, `python -m agents.isolation.child`: takes calls from its worker, one after the other.

The worker kills it at the deadline of a call. Should the worker be gone by then, two things end it: the pipe from the
worker is closed, and a timer of the kernel rings, which needs no turn of the interpreter.
"""

import importlib
import json
import os
import queue
import signal
import threading
from collections.abc import Callable
from typing import IO, Any

MARGIN = 5.0  # seconds past the deadline until the kernel ends a call that the worker did not


def main() -> None:
    requests, out = _pipes()
    import django

    django.setup()
    for module in json.loads(requests.get())["modules"]:
        importlib.import_module(module)
    out.write(b"ready\n")
    while True:
        message = json.loads(requests.get())
        out.write(json.dumps(_perform(message)).encode() + b"\n")


def _pipes() -> tuple["queue.SimpleQueue[bytes]", IO[bytes]]:
    """Requests as they come in, and where outcomes go. Neither is for what a tool starts or reads."""
    from agents.isolation.processes import OUT

    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    incoming = os.fdopen(os.dup(0), "rb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    number = int(os.environ.pop(OUT))
    os.set_inheritable(number, False)
    threading.Thread(target=_listen, args=[incoming, requests.put], daemon=True).start()
    return requests, os.fdopen(number, "wb", buffering=0)


def _listen(incoming: IO[bytes], put: Callable[[bytes], None]) -> None:
    for line in incoming:
        put(line)
    os.killpg(0, signal.SIGKILL)  # the worker is gone, or wants us to be


def _perform(message: dict[str, Any]) -> tuple[str, Any]:
    """The kind of the outcome and what is in it."""
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
