"""The definition of a trigger: its text, as it is signed, and the checks of a definition that a person sends. Pure."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Any

from runtime.core.digest import sha256_of
from runtime.core.limits import MAX_EVENT_NAME
from runtime.errors import InvalidInput
from runtime.objects.by_address import SCHEMES
from runtime.triggers import fields
from runtime.triggers.events import mapping

MAX_AT_ONCE = 1_000
MAX_DEBOUNCE = 3_600  # seconds
MAX_RATE_SECONDS = 86_400
MAX_PLACE = 500  # characters of the path of a folder, or the address of a bucket
SOURCES = ("folder", "stream", "bucket")
SHOWN_ID = 60  # characters of an event's id in the business key of its run


class Wakes(StrEnum):
    """Whether an event is for a run that waits for it."""

    NONE = ""  # it starts a run
    FIRST = "first"  # it wakes the run with its business key, and starts one if none is there
    ONLY = "only"  # it wakes such a run, and starts none


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """One trigger: which events start which agent on which input, and how many at once.

    `filter`, `key`, `business_key` and `thread` are expressions in CEL, empty without one. The limits are None without
    one. `rate` runs start in `rate_seconds` at most. `debounce` is in seconds, 0 without one. Files of `folder`,
    entries of `stream` or objects of `bucket` are events of this trigger; they are empty without one. With `wakes`,
    the business key, or the id of a run, says which run of the agent waits for an event.
    """

    name: str
    agent: str
    event: str
    filter: str
    mapping: Any
    key: str
    business_key: str
    at_once: int | None
    at_once_per_key: int | None
    debounce: int
    rate: int | None
    rate_seconds: int
    folder: str = ""
    stream: str = ""
    bucket: str = ""
    wakes: str = Wakes.NONE
    thread: str = ""

    def key_of(self, facts: Mapping[str, Any]) -> str:
        """Return the key of an event, empty without one. Raise InvalidInput naming the expression."""
        if self.wakes:
            return mapping.text_of(self.business_key, facts, "business_key")
        return mapping.text_of(self.key, facts, "key") if self.key else ""

    def business_key_of(self, facts: Mapping[str, Any], key: str) -> str:
        """Return the business key of the run of an event; `key` tells events apart. Raise InvalidInput.

        Without an expression each event has a key of its own. People see it as the title of the run.
        """
        if self.business_key:
            return mapping.text_of(self.business_key, facts, "business_key")
        return f"{self.name} {facts['id'][:SHOWN_ID]} ({sha256_of(key)[-12:]})"

    def thread_of(self, facts: Mapping[str, Any]) -> str | None:
        """Return the thread of the run of an event, None without one. Raise InvalidInput naming `thread`."""
        return mapping.text_of(self.thread, facts, "thread") if self.thread else None


def to_text(one: Definition) -> str:
    """Write a definition as JSON, for its MAC."""
    return json.dumps(asdict(one), ensure_ascii=False, sort_keys=True)


def from_text(text: str) -> Definition:
    """Read a definition that `to_text` wrote."""
    return Definition(**json.loads(text))


def read(sent: Mapping[str, object]) -> Definition:
    """Return the definition that a person sent, without checking the mapping against its agent.

    Raise InvalidInput naming the field.
    """
    event = fields.text(sent.get("event"), "event").strip()
    if not 1 <= len(event) <= MAX_EVENT_NAME:
        raise InvalidInput("event", f"must have 1 to {MAX_EVENT_NAME} characters")
    given = sent.get("mapping", {})
    mapping.check(given)
    rate = _limit(sent, "rate")
    found = Definition(
        name=fields.name(sent.get("name")),
        agent=fields.text(sent.get("agent"), "agent"),
        event=event,
        filter=_expression(sent, "filter"),
        mapping=given,
        key=_expression(sent, "key"),
        business_key=_expression(sent, "business_key"),
        at_once=_limit(sent, "at_once"),
        at_once_per_key=_limit(sent, "at_once_per_key"),
        debounce=_seconds(sent, "debounce", 0, MAX_DEBOUNCE, 0),
        rate=rate,
        rate_seconds=_seconds(sent, "rate_seconds", 1, MAX_RATE_SECONDS, 60),
        folder=_folder(sent),
        stream=fields.text(sent.get("stream") or "", "stream").strip(),
        bucket=_bucket(sent),
        wakes=_wakes(sent),
        thread=_expression(sent, "thread"),
    )
    if found.wakes:
        _require_correlation(found)
    if found.at_once_per_key is not None and not found.key:
        raise InvalidInput("at_once_per_key", "needs a key")
    given = [name for name in SOURCES if getattr(found, name)]
    if len(given) > 1:
        raise InvalidInput(given[1], f"is not for a trigger with a {given[0]}")
    return found


def _wakes(sent: Mapping[str, object]) -> Wakes:
    try:
        return Wakes(fields.text(sent.get("wakes") or "", "wakes"))
    except ValueError as exc:
        raise InvalidInput("wakes", f"must be {Wakes.FIRST}, {Wakes.ONLY} or empty") from exc


def _require_correlation(one: Definition) -> None:
    """Raise InvalidInput unless the business key alone says which run an event is for, at once."""
    if not one.business_key:
        raise InvalidInput("business_key", "must say which run an event wakes")
    if one.key:
        raise InvalidInput("key", "must be empty: the business key says which run an event wakes")
    if one.debounce:
        raise InvalidInput("debounce", "must be 0 for a trigger that wakes runs")


def _expression(sent: Mapping[str, object], field: str) -> str:
    text = fields.text(sent.get(field) or "", field).strip()
    if text:
        mapping.check_expression(text, field)
    return text


def _folder(sent: Mapping[str, object]) -> str:
    text = fields.text(sent.get("folder") or "", "folder").strip()
    if not text:
        return ""
    path = PurePosixPath(text)
    if not path.is_absolute() or ".." in path.parts or len(text) > MAX_PLACE:
        raise InvalidInput(
            "folder", f"must be a path from / on, without .., of at most {MAX_PLACE} characters"
        )
    return str(path)


def _bucket(sent: Mapping[str, object]) -> str:
    text = fields.text(sent.get("bucket") or "", "bucket").strip().rstrip("/")
    if not text:
        return ""
    scheme, _, path = text.partition("://")
    parts = path.split("/")
    if f"{scheme}://" not in SCHEMES or {"", ".", ".."} & {*parts} or len(text) > MAX_PLACE:
        raise InvalidInput(
            "bucket",
            f"must start with {' '.join(SCHEMES)}, without .. or //, of at most {MAX_PLACE} characters",
        )
    return text


def _limit(sent: Mapping[str, object], field: str) -> int | None:
    given = sent.get(field)
    return None if given is None else fields.whole(given, field, 1, MAX_AT_ONCE)


def _seconds(sent: Mapping[str, object], field: str, least: int, most: int, default: int) -> int:
    given = sent.get(field)
    return default if given is None else fields.whole(given, field, least, most, "seconds")
