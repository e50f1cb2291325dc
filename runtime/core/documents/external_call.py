"""The input of a run that stands for one call of an agent outside, and the arguments of that call.

The run's agent makes one call, which an instance outside performs. The input keeps the fields of the instance's request
as it sent them; the arguments of the call are what people read and decide about.
"""

from datetime import UTC, datetime
from typing import Any

from runtime.core.values import json_values
from runtime.core.values.errors import NotJson

AGENT = "external_agent"
TOOL = "external_call"
# An instance may repeat its request for a week after the decision, and a day after its webhook was told, for a week.
KEPT_DAYS = 9  # at least, after the end of the run
FAILED_KEPT_DAYS = 39  # the request of a failed run is pending until its deadline

_VALID_SECONDS = 300.0


def is_started_by_people(agent: str) -> bool:
    """Tell whether people start an agent of this name. Instances alone start the built-in one."""
    return agent != AGENT


def read_call_arguments(run_input: Any) -> dict[str, Any]:
    """Return the arguments of the call. Raise NotJson if they cannot be shown to people."""
    submitted = run_input["submitted"]
    call = {
        name: read_submitted_field(run_input, name)
        for name in ("tool", "server")
        if name in submitted
    }
    context = read_submitted_field(run_input, "context") or {}
    if context.get("risk") == "high":  # any other claim changes nothing
        call["risk"] = "high"
    return {
        "instance": run_input["instance"],
        "instance_name": run_input["instance_name"],
        **call,
        "arguments": read_submitted_field(run_input, "arguments"),
    }


def read_submitted_field(run_input: Any, name: str) -> Any:
    """Return a submitted field as people read it, None if it was not sent. Raise NotJson."""
    text = run_input["submitted"].get(name)
    return None if text is None else json_values.make_readable(json_values.read(text), name)


def read_call_names(run_input: Any) -> dict[str, Any]:
    """Return the names of the tool and of the instance; none of a tool that cannot be shown."""
    try:
        tool = read_submitted_field(run_input, "tool")
    except NotJson:
        tool = None
    return {"tool": tool, "instance": run_input["instance_name"]}


def read_framework(run_input: Any) -> str:
    """Return the framework that the instance names in its context, empty if it names none."""
    try:
        context = read_submitted_field(run_input, "context")
    except NotJson:
        return ""
    value = context.get("framework") if isinstance(context, dict) else None
    return value if isinstance(value, str) else ""


def read_deadline(run_input: Any) -> datetime:
    """Return when people can no longer decide. An input that is not ours has no time left."""
    try:
        return datetime.fromisoformat(run_input["deadline_at"])
    except (KeyError, TypeError, ValueError):
        return datetime.min.replace(tzinfo=UTC)


def read_valid_seconds(run_input: Any) -> float:
    """Return for how many seconds an approval may be used."""
    try:
        return float(run_input["valid_seconds"])
    except (KeyError, TypeError, ValueError):
        return _VALID_SECONDS
