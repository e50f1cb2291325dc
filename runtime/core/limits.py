"""How much of anything is taken in, in one place: every edge refuses what is beyond, naming field and limit.

Sizes are bytes of compact JSON or characters of text. What no text and no number may be is checked by
`digest.require_json`, to which JSON_DEPTH and MAX_INTEGER belong.
"""

import json
from typing import Any

JSON_DEPTH = 64  # lists and objects in each other
MAX_INTEGER = 2**53 - 1  # RFC 7493; beyond it readers of JSON disagree

MAX_BODY = 2 * 1024 * 1024  # of a request to the web
MAX_INPUT = 64 * 1024  # what a run or a sub-agent is given
MAX_ARGS = 256 * 1024  # what one call is given
MAX_RESULT = 4 * 1024 * 1024  # what a tool returns
KEPT_INLINE = 64 * 1024  # of a result in an event; beyond that the event refers to it
PREVIEW = 400  # characters of a result that is stored elsewhere
MAX_REPORTED = 64 * 1024  # the result that a person reports
MAX_REPLY = 1024 * 1024  # one reply of a model, with all its calls
MAX_INSTRUCTIONS = 64 * 1024  # characters of instructions that a function returns
MAX_SUMMARY = 64 * 1024  # characters of what stands for earlier messages
MAX_CALLS = 128  # in one reply
MAX_TOOL = 200  # characters of a tool's name as a model writes it
MAX_ERROR = 2_000  # characters of what went wrong
MAX_REASON = 2_000  # characters of why somebody decided or ended something
MAX_MESSAGE = 16_000  # characters of what somebody writes to a run
MAX_UNDELIVERED = 20  # messages of a run that no model has heard yet
MAX_EVENT_DATA = 32 * 1024  # what an event from outside tells
MAX_EVENT_NAME = 200  # characters of what it is called, or of its id
MAX_MATCH = 4 * 1024  # what a wait asks of an event's data
MAX_WAIT_DAYS = 366  # how far ahead a wait may end
MAX_MATCHED = 1_000  # waits that one event ends
MAX_KEY = 200  # characters of a business key

_compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def size_of(value: Any) -> int:
    """The bytes of a JSON value, written compactly."""
    text = _compact(value)
    return len(text) if text.isascii() else len(text.encode())


def plain(text: str) -> str:
    """Text that any journal takes: without NUL and half surrogates, at most MAX_ERROR characters."""
    clean = text[: MAX_ERROR + 1].replace("\x00", "\\0")
    clean = clean.encode("utf-8", "backslashreplace").decode()
    return clean if len(clean) <= MAX_ERROR else clean[: MAX_ERROR - 1] + "…"
