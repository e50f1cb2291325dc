"""Upgrades documents of earlier schemas to the present one."""

from typing import Any

from runtime.core.machine import origin


def upcast(document: dict[str, Any]) -> dict[str, Any]:
    """Return a continuation's document in the present schema."""
    if document["schema"] < 5 and "origin" not in document:
        document = {**document, "origin": origin.of_document(document)}
    frames = document.get("frames")
    if document["schema"] > 1 or not isinstance(frames, dict):
        return document
    return {**document, "frames": {name: _with_failures(frame) for name, frame in frames.items()}}


def _with_failures(frame: Any) -> Any:
    """Convert a frame of schema 1, which had one model and counted every attempt but the last as failed."""
    if not isinstance(frame, dict) or not isinstance(frame.get("attempt"), int):
        return frame
    return {**frame, "failures": frame["attempt"] - (frame.get("state") != "retrying")}
