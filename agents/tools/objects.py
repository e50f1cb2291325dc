"""Objects that agents read and write: texts under the prefix that an author fixes, in a store that the author names.

An object is written only in place of the one that its caller has seen. So a repeated attempt changes nothing more, and
no other writer's text is lost.
"""

import hashlib
import re
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any
from weakref import WeakSet

from pydantic import Field

from agents.errors import DefinitionError, ToolError
from agents.sdk import FailureCause, NotDone, Preview, PreviewChange, ToolContext, mistakes, tool
from agents.sdk.spec import ToolSpec
from runtime.core.values.enums import EffectClass, Risk
from runtime.errors import ObjectStoreDown
from runtime.ports import wiring
from runtime.ports.objects import ObjectStore
from runtime.store.object_stores.stores import SCHEMES, open_store

MAX_KEY = 300  # characters
MAX_TEXT = 200_000  # bytes of an object
SHOWN = 2_000  # characters of a text in a preview
OWN = "tools"  # the place of agents in the store of the installation, apart from its contents

_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}"
_KEY = rf"^{_NAME}(/{_NAME})*$"
_DIGEST = r"^sha256:[0-9a-f]{64}$"

Key = Annotated[
    str,
    Field(
        max_length=MAX_KEY,
        pattern=_KEY,
        description="names of letters, digits, '.', '-' and '_', with '/' between them",
    ),
]
Text = Annotated[str, Field(max_length=MAX_TEXT)]
Expected = Annotated[
    str | None,
    Field(
        pattern=_DIGEST,
        description="the digest of the text that is there now, as it was read; null if there is none",
    ),
]


class _Prefix:
    """The objects below a prefix of a store."""

    def __init__(self, prefix: str, store: str | None, label: str) -> None:
        """Raise DefinitionError for an invalid prefix or address."""
        if not re.fullmatch(_KEY[1:-1], prefix):
            raise DefinitionError(f"{label}: prefix: {prefix!r}: names with '/' between them")
        if store is not None and (
            not store.startswith(("/", *SCHEMES)) or re.search(r"[{}?#@]|/\.\.?(/|$)", store)
        ):
            raise DefinitionError(
                f"{label}: store: it starts with / or {', '.join(SCHEMES)}, and has no user, query or '..'"
            )
        self.name = f"{store.rstrip('/')}/{prefix}" if store else f"{OWN}/{prefix}"
        self._prefix = prefix if store else f"{OWN}/{prefix}"
        self._address = store
        self._prepared: WeakSet[ObjectStore] = WeakSet()

    def read(self, key: str) -> bytes | None:
        """Return the object, None if there is none. Raises ToolError if it cannot be read."""
        try:
            return self._store().get(self._path(key), max_bytes=MAX_TEXT)
        except ValueError as exc:
            raise ToolError(f"key: {exc}") from exc

    def swap(self, key: str, data: bytes, before: bytes | None) -> bool:
        """Write the object if it is `before` now."""
        return self._store().swap(self._path(key), data, before=before)

    def _path(self, key: str) -> str:
        return f"{self._prefix}/{key}"

    def _store(self) -> ObjectStore:
        store = _open_store(self._address) if self._address else wiring.find_object_store()
        if store is None:
            raise NotDone(
                "the workers have no SIGNOFF_OBJECT_STORE, and the tool names no store",
                cause=FailureCause.SETUP,
            )
        if self._address is None and store not in self._prepared:
            store.prepare()
            self._prepared.add(store)
        return store


@cache
def _open_store(address: str) -> ObjectStore:
    try:
        return open_store(address, marked=False)
    except ValueError as exc:
        raise NotDone(f"{address} cannot be used: {exc}", cause=FailureCause.SETUP) from exc


@mistakes.record_mistakes
def read_object(
    prefix: str,
    *,
    store: str | None = None,
    name: str = "read_object",
    description: str | None = None,
    approval: bool = False,
) -> ToolSpec:
    """Make a tool with which an agent reads texts below `prefix` and nothing else. It gives the rest of the key.

    `store` is a folder or the address of a bucket, whose credentials are in the environment of the workers; without it
    the objects are below `tools/` in SIGNOFF_OBJECT_STORE. The result is `{"key": …, "exists": …, "text": …,
    "digest": …}`; a text is UTF-8 and has at most 200,000 bytes. Raises DefinitionError if the definition is invalid.
    """
    folder = _Prefix(prefix, store, f"tool {name}")

    def read(context: ToolContext, key: str) -> dict[str, Any]:
        try:
            data = folder.read(key)
        except ObjectStoreDown as exc:
            raise NotDone(str(exc), cause=FailureCause.NETWORK) from exc
        try:
            text = None if data is None else data.decode()
        except UnicodeDecodeError as exc:
            raise ToolError(f"key: {key} is not a text in UTF-8") from exc
        if text is not None and "\x00" in text:
            raise ToolError(f"key: {key} is not a text: it has zero bytes")
        return {
            "key": key,
            "exists": data is not None,
            "text": text,
            "digest": _compute_digest(data),
        }

    _describe(read, name, description or f"Read a text below {folder.name}/.", key=Key)
    return tool(effect=EffectClass.READ, approval=approval, sentence=f"Read {folder.name}/{{key}}")(
        read
    )


@mistakes.record_mistakes
def write_object(
    prefix: str,
    *,
    store: str | None = None,
    name: str = "write_object",
    description: str | None = None,
    approval: bool | Callable[..., bool] = True,
    risk: Risk | str | Callable[..., Risk | str] = Risk.MEDIUM,
) -> ToolSpec:
    """Make a tool with which an agent writes texts below `prefix` and nowhere else. It gives the rest of the key.

    `store` is as for `read_object`. The model also gives `expected`, the digest of the text that it read, or null for
    a new object: if another text is there, nothing is written, and no person is asked. So the tool is `idempotent`: a
    repeated attempt finds its own text there. Of writers that expect the same text one succeeds. The preview shows
    both texts. A text has at most 200,000 bytes. Raises DefinitionError if the definition is invalid.
    """
    folder = _Prefix(prefix, store, f"tool {name}")

    def refusal(key: str, text: str, expected: str | None) -> str | None:
        try:
            _read_expected(folder, key, text, expected)
        except ToolError as exc:
            return str(exc)
        return None

    def preview(key: str, text: str, expected: str | None) -> Preview:
        return _build_preview(
            f"{folder.name}/{key}", _read_expected(folder, key, text, expected), text
        )

    def write(context: ToolContext, key: str, text: str, expected: str | None) -> dict[str, Any]:
        try:
            data = text.encode()
            now = _read_expected(folder, key, text, expected)
            # Another attempt at this call may have been faster: then its text is there.
            if now != data and not folder.swap(key, data, now) and folder.read(key) != data:
                raise ToolError(f"key: {key} was changed by another writer at the same time")
            return {"key": key, "digest": _compute_digest(data)}
        except ObjectStoreDown as exc:
            raise ConnectionError(str(exc)) from exc

    _describe(
        write,
        name,
        description
        or f"Write a text below {folder.name}/, in place of the one that was read there.",
        key=Key,
        text=Text,
        expected=Expected,
    )
    return tool(
        effect=EffectClass.IDEMPOTENT,
        approval=approval,
        risk=risk,
        sentence=f"Write {folder.name}/{{key}}",
        precondition=refusal,
        preview=preview,
    )(write)


def _read_expected(folder: _Prefix, key: str, text: str, expected: str | None) -> bytes | None:
    """Return the present object. Raises ToolError unless it is what the caller expects, or already the new text."""
    if (size := len(text.encode())) > MAX_TEXT:
        raise ToolError(f"text: it has {size} bytes, at most {MAX_TEXT} are written")
    data = folder.read(key)
    if data == text.encode() or _compute_digest(data) == expected:
        return data
    if expected is None:
        raise ToolError(f"key: {key} exists: read it, and give its digest as expected")
    problem = "does not exist" if data is None else "has another text"
    raise ToolError(f"expected: {key} {problem}: read it again")


def _build_preview(name: str, before: bytes | None, text: str) -> Preview:
    after = text.encode()
    if before == after:
        return Preview(summary="Changes nothing", targets=[name])
    old_text = None if before is None else _shorten(before)
    return Preview(
        summary=f"Writes a new text ({len(after):,} bytes)"
        if before is None
        else f"Replaces a text ({len(before):,} bytes) by another ({len(after):,} bytes)",
        changes=[PreviewChange(what="text", before=old_text, after=_shorten(after))],
        targets=[name],
    )


def _shorten(data: bytes) -> str:
    text = data.decode("utf-8", "replace").replace("\x00", "\\0")
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def _compute_digest(data: bytes | None) -> str | None:
    return None if data is None else f"sha256:{hashlib.sha256(data).hexdigest()}"


def _describe(function: Callable[..., Any], name: str, description: str, **arguments: Any) -> None:
    function.__name__, function.__doc__ = name, description
    function.__annotations__ = {"context": ToolContext, **arguments, "return": dict[str, Any]}
