"""What documents of earlier schemas must be given before they are read as ones of the present."""

from typing import Any

from runtime.core.machine import origin


def upcast(document: dict[str, Any]) -> dict[str, Any]:
    """A continuation's document with everything that its schema said in other words."""
    if document["schema"] < 5 and "origin" not in document:
        document = {**document, "origin": origin.of_document(document)}
    frames = document.get("frames")
    if document["schema"] > 1 or not isinstance(frames, dict):
        return document
    return {**document, "frames": {name: _with_failures(frame) for name, frame in frames.items()}}


def _with_failures(frame: Any) -> Any:
    """Schema 1 knew one model of an agent, and every attempt at it but the last as a failed one."""
    if not isinstance(frame, dict) or not isinstance(frame.get("attempt"), int):
        return frame
    return {**frame, "failures": frame["attempt"] - (frame.get("state") != "retrying")}
