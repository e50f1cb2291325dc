"""Compresses short entries with a dictionary of frequent names, as text that a column can hold.

Postgres compresses values over two kilobytes, each by itself. An entry has a few hundred bytes, and most of them are
the same in all entries: names of events and fields. DEFLATE (RFC 1951) with these names as its preset dictionary
writes an entry in 5 us and reads it in 2. The dictionary is part of schema 1: if one byte of it changes, compressed
entries cannot be read. An entry of another schema is not compressed, so Postgres can tell whether it can be read.
"""

import zlib
from binascii import a2b_base64, b2a_base64

from runtime.core.values.errors import Unreadable

MAX_CHARACTERS = 8_192  # Postgres compresses longer text itself

_SCHEMA_1 = '{"schema":1,'
_BEGINNING, _END = f'{_SCHEMA_1}"z":"', '"}'

_WINDOW = -13  # raw DEFLATE with an 8 KB window; the dictionary has 2 KB
_LEVEL, _MEMORY = 3, 5

# The most frequent names come last: their distance takes the fewest bits.
_DICTIONARY = (
    b'{"type":"Cancelling","by":"","reason":"{"type":"Failed","error":"{"type":"ModelFailed","frame":"0","error":"'
    b'{"type":"RetryScheduled","frame":"0","call":"c1.0","attempt":2,"due":"{"type":"Compacted","summary":"'
    b'{"type":"WaitStarted","frame":"0","call":"c1.0","event":"","match":{"until":"'
    b'{"type":"WaitEnded","frame":"0","call":"c1.0","outcome":"arrived","result":{'
    b'{"type":"OutcomeUnknown","frame":"0","call":"c1.0","attempt":1,"error":"{"type":"GateClosed","gate":"01'
    b'{"type":"ToolFailed","frame":"0","call":"c1.0","attempt":1,"error":"{"type":"CallRefused","frame":"0","call":"'
    b'"stored":{"digest":"sha256:","size":,"preview":""}}{"$secret":"{"type":"FrameClosed","frame":"0/c1.0","result":"'
    b'"business_key":"{"type":"RunStarted","agent":"","input":{"","requester":"","budget":{}}]}'
    b'{"type":"FrameOpened","frame":"0","agent":"","fingerprint":"sha256:","prompt":"sha256:","plan":null,"input":{'
    b'"parent":"0","call":"c1.0","instructions":"","at":"2026-","rates":{"input":0,"output":0}}]}'
    b'"verdict":"deny","effect":"read","effect":"write","kind":"version","kind":"in_doubt","cache_read_tokens":'
    b'{"type":"ModelReplied","frame":"0","reply":{"parts":[{"part_kind":"text"}]},"text":"","calls":[],"usage":{"'
    b'"model":"","cost":0},{"type":"Completed","output":"'
    b'"gate":"01","frame":"0","call":"c1.0","verdict":"approve","by":"","reason":""},{"type":"GateDecided","gate":"01'
    b'"model":"","cost":0},{"type":"GateOpened","gate":"01","kind":"approval","frame":"0","call":"c1.0","terms":{"'
    b'"deadline":30.0},"expires_at":"2026-'
    b'"tool-call","tool_call_id":"call_0"},{"part_kind":"tool-call","tool_call_id":"call_1"}]},"text":"","calls":['
    b'{"type":"ToolReturned","frame":"0","call":"c1.0","attempt":1,"result":{"'
    b'{"type":"ModelReplied","frame":"0","reply":{"parts":[{"part_kind":"tool-call","tool_call_id":"call_0"}]},'
    b'"text":"","calls":[{"tool":"","args":{""}}],"usage":{"input_tokens":1000,"output_tokens":100},"model":"","cost":0},'
    b'{"type":"CallAdmitted","frame":"0","call":"c1.0","terms":{"effect":"idempotent","digest":"sha256:'
    b'","deadline":30.0}},{"type":"ToolStarted","frame":"0","call":"c1.0","attempt":1,"at":"'
    b'{"schema":1,"at":"2026-01-01T00:00:00.000000+00:00","events":[{"type":"'
)
# Has read the dictionary; copied for each text.
_DEFLATE = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOW, _MEMORY, zdict=_DICTIONARY)


def stored_text(text: str) -> str:
    """Return the text of an entry as stored: compressed if that is shorter."""
    if len(text) > MAX_CHARACTERS or not text.startswith(_SCHEMA_1):
        return text
    short = f"{_BEGINNING}{compress(text)}{_END}"
    return short if len(short) < len(text) else text


def plain_text(stored: str) -> str:
    """Return the text of a stored entry. Raises Unreadable."""
    if not stored.startswith(_BEGINNING):
        return stored
    try:
        text = decompress(stored[len(_BEGINNING) : -len(_END)])
    except ValueError as exc:
        raise Unreadable(f"not an entry: {exc}") from exc
    if not stored.endswith(_END):
        raise Unreadable("not an entry: the compressed text has no end")
    return text


def packed(stored: str) -> bytes | None:
    """Return the compressed bytes of a stored text. None for a text that `unpacked` could not restore."""
    if not stored.startswith(_BEGINNING):
        return None
    try:
        compressed = a2b_base64(stored[len(_BEGINNING) : -len(_END)])
    except ValueError:
        return None
    return compressed if unpacked(compressed) == stored else None


def unpacked(compressed: bytes) -> str:
    """Return the stored text of which `packed` gives these bytes."""
    return f"{_BEGINNING}{b2a_base64(compressed, newline=False).decode()}{_END}"


def compress(text: str) -> str:
    """Compress a text with DEFLATE and encode it as base64."""
    deflate = _DEFLATE.copy()
    compressed = deflate.compress(text.encode()) + deflate.flush()
    return b2a_base64(compressed, newline=False).decode()


def decompress(text: str) -> str:
    """Undo `compress`. Raises ValueError for any other text, and for a result over MAX_CHARACTERS."""
    inflate = zlib.decompressobj(_WINDOW, zdict=_DICTIONARY)
    try:
        decompressed = inflate.decompress(a2b_base64(text, strict_mode=True), MAX_CHARACTERS)
    except zlib.error as exc:
        raise ValueError(str(exc)) from exc
    if not inflate.eof or inflate.unused_data:
        raise ValueError("it ends too early or too late, or is too long")
    return decompressed.decode()
