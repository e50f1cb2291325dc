"""The old name of `agents.sdk.scripts`. It works for one release, with a warning."""

import logging

from agents.sdk.scripts import Reply, Result, Script, Turn, answer, call, say, script, together

__all__ = ["Reply", "Result", "Script", "Turn", "answer", "call", "say", "script", "together"]

logging.getLogger(__name__).warning(
    "agents.gateway.scripted is now agents.sdk.scripts; the old name goes with the next release"
)
