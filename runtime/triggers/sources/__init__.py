"""All sources of triggers besides people and webhooks. A new one is a module, a line here, and its setting."""

from collections.abc import Mapping

from runtime.errors import InvalidInput
from runtime.triggers import fields
from runtime.triggers.sources import buckets, folders, streams
from runtime.triggers.sources.reading import WatchedSource

SOURCES: Mapping[str, WatchedSource] = {
    source.kind: source for source in (folders.SOURCE, streams.SOURCE, buckets.SOURCE)
}


def read_location(sent: Mapping[str, object]) -> tuple[str, str]:
    """Return the source and the location of a definition that a person sent, both empty without one.

    Raise InvalidInput naming the field.
    """
    texts = {kind: fields.read_text(sent.get(kind) or "", kind).strip() for kind in SOURCES}
    kinds = [kind for kind, text in texts.items() if text]
    if not kinds:
        return "", ""
    if len(kinds) > 1:
        raise InvalidInput(kinds[1], f"is not for a trigger with a {kinds[0]}")
    return kinds[0], SOURCES[kinds[0]].check(texts[kinds[0]])
