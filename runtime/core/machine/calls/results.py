"""The results of settled calls, as models receive them."""

from typing import Any

from runtime.core.continuation import Call


def result_of(call: Call) -> dict[str, Any]:
    """Return the result of a settled call as the model receives it."""
    result: dict[str, Any] = {
        "call": call.id,
        "tool": call.tool,
        "outcome": str(call.state),
        "content": call.result,
    }
    if call.stored is not None:
        result["stored"] = {"digest": call.stored.digest, "size": call.stored.size}
    if call.verdict is not None:
        result["verdict"] = call.verdict
    if call.answered:
        result["answered"] = True
    if call.edited is not None and not call.edited.of_reply(call.args):
        result |= {"edited_by": call.edited.by, "args": call.args}
    if call.changed_by is not None:
        result["changed_by"] = call.changed_by
    return result if call.reported_by is None else {**result, "reported_by": call.reported_by}
