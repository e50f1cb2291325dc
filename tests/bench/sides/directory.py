"""The baseline with a directory and mail: the same loop, with the tools of HR and threads instead of pool processes.

`celery -A tests.bench.sides.directory worker` runs it; who starts and approves does it as for the baseline.
"""

import os
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
django.setup()

from agents.flows.hr.onboarding import hr_onboarding_single  # noqa: E402
from agents.sdk import ToolContext  # noqa: E402
from tests.bench.sides.baseline import app  # noqa: E402, F401 - Celery looks for it here
from tests.bench.sides.workload import SCRIPTS, TOOLS, Call, Reply  # noqa: E402

AGENT = hr_onboarding_single.name
PERSON = ("full_name", "email", "username")


def onboard(given: Any, results: int, result: Callable[[int], Any]) -> Reply:
    """Return the reply of the agent's own script."""
    person = {name: given[name] for name in PERSON}
    if results == 0:
        return Call("create_account", person)
    if results == 1:
        level = {name: given[name] for name in ("username", "security_level")}
        return Call("set_privileges", {"account_id": result(0)["id"], **level})
    if results == 2:
        return Call("send_welcome_mail", person)
    return f"The account {given['username']} was made; the welcome mail went to {given['email']}."


def _performing(tool: Any) -> Callable[..., Any]:
    def perform(**args: Any) -> Any:
        key = str(uuid4())
        context = ToolContext(run=uuid4(), frame="0", call="c1", attempt=1, key=key, deadline=30.0)
        return tool(context, **args)

    return perform


SCRIPTS[AGENT] = onboard
TOOLS.update({tool.name: _performing(tool) for tool in hr_onboarding_single.tools})
