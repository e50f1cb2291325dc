"""Tools that run in processes of their own, as an author's module has them."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

from agents.credentials import Environment
from agents.sdk import NotDone, ToolContext, ToolError, tool
from tests.support.specs import spec_of


@tool(isolate=True, effect="read")
def whoami(context: ToolContext, name: str) -> dict[str, Any]:
    """Say which process it is."""
    sys.stdout.write("what a tool prints is no outcome\n")
    sys.stdout.flush()
    return {"name": name, "process": os.getpid(), "key": context.key, "left": context.remaining()}


@tool(isolate=True, deadline=2.0)
def spin(folder: str) -> str:
    """Never return, and start a program that does not end either."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(folder, "pids").write_text(f"{os.getpid()} {child.pid}")
    while True:
        pass


@tool(isolate=True)
def end(how: str) -> str:
    """End in a way."""
    match how:
        case "crash":
            os.abort()
        case "refuse":
            raise ToolError("not today")
        case "undone":
            raise NotDone("later", after=3.0)
        case _:
            raise ValueError("a surprise")


@tool(isolate=True, effect="read", credentials=[Environment("crm", "CRM_SECRET")])
def tell(context: ToolContext) -> str:
    """Print and log a credential in each of its forms."""
    token = context.credentials["crm"]
    log = logging.getLogger("crm")
    log.warning("Bearer %s and %r", token, {token: token})
    for stream in (sys.stdout, sys.stderr):
        print("printed", token, json.dumps(token), file=stream, flush=True)
    sys.stdout.writelines([f"written {token}\n"])
    try:
        raise ValueError(f"https://crm.example/?token={quote(token)}")
    except ValueError:
        log.exception("refused with %s", token)
    return "told"


isolating = spec_of("isolating", tools=[whoami, tell])
