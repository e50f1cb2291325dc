"""Writes a run as one file for another installation, and checks that such a file is consistent.

`{"format", "key_id", "signature", "manifest", "entries", "contents"}`: `entries` are the exact texts of the journal,
`contents` the results stored by their hash. The signature covers `manifest`, a JSON text that names the run, its
agents and the digest of all entries. So it covers the whole file, and stays small enough to be kept in the journal of
the importing installation as evidence.

The file of an archived run has a `record` too, which the manifest covers: what else is stored of the run. Its run has
ended, and its entries are the stored texts.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from pydantic import TypeAdapter, ValidationError

from runtime.core.continuation import CallState, Continuation, Phase
from runtime.core.digest import sha256_of
from runtime.core.documents import codec
from runtime.core.documents.blobs import blob_refs, digest_of
from runtime.core.errors import CoreError, NewerSchema, Unreadable
from runtime.core.machine.replay import initial, step

FORMAT = "abeyance.run"
SCHEMA = 1
MAX_BYTES = 64 * 1024 * 1024

# The JSON form of a sealed value, also inside a text that was written as JSON again.
_SEALED = re.compile(r'\$secret\\*"\s*:\s*\\*"(?P<key>[^"\\:]+):')


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The signed part.

    `agents` are fingerprints by name, `secrets` the ids of the keys that seal values in the run.
    """

    schema: int
    run: UUID
    agent: str
    requester: str
    position: int
    entries: str
    contents: tuple[str, ...]
    agents: dict[str, str]
    secrets: tuple[str, ...]
    record: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportFile:
    """A parsed file. `manifest` is the exact signed text, `contents` are texts by digest, `record` is JSON text."""

    key_id: str
    signature: str
    manifest: str
    entries: tuple[str, ...]
    contents: dict[str, str]
    record: str = ""


_MANIFESTS: TypeAdapter[Manifest] = TypeAdapter(Manifest)
_FILES: TypeAdapter[ExportFile] = TypeAdapter(ExportFile)


def manifest_of(
    now: Continuation, entries: Iterable[str], contents: dict[str, str], record: str = ""
) -> str:
    """Return the text to sign for a run whose journal is `entries` and folds to `now`."""
    bodies = list(entries)
    manifest = Manifest(
        schema=SCHEMA,
        run=now.run,
        agent=now.agent,
        requester=now.requester,
        position=len(bodies),
        entries=digest_of_entries(bodies),
        contents=tuple(sorted(contents)),
        agents=now.agents,
        secrets=tuple(sorted(secret_key_ids([*bodies, *contents.values()]))),
        record=digest_of(record) if record else "",
    )
    return _text(_MANIFESTS.dump_python(manifest, mode="json"))


def encode(package: ExportFile) -> str:
    """Write the file as compact JSON."""
    return _text({"format": FORMAT, **_FILES.dump_python(package, mode="json")})


def decode(text: str) -> ExportFile:
    """Read a file. Raises Unreadable."""
    try:
        document = json.loads(text)
        if not isinstance(document, dict) or document.pop("format", None) != FORMAT:
            raise Unreadable("it is no exported run")
        return _FILES.validate_python(document)
    except RecursionError:
        raise Unreadable("it is nested too deep") from None
    except ValidationError as exc:
        raise Unreadable(f"it is no exported run: {exc.errors()[0]['msg']}") from exc
    except ValueError as exc:
        raise Unreadable(f"it is not JSON: {exc}") from exc


def check(package: ExportFile) -> tuple[Manifest, Continuation]:
    """Return the manifest and the state that the entries fold to, if the file is consistent.

    The signature is not checked here. Raises Unreadable or NewerSchema.
    """
    manifest, now = _consistent(package)
    if package.record or now.phase is not Phase.EXPORTED:
        raise Unreadable("its journal does not end with an export")
    if any(call.state is CallState.STARTED for f in now.frames.values() for call in f.calls):
        raise Unreadable("one of its calls is running")
    return manifest, now


def check_archived(package: ExportFile) -> tuple[Manifest, Continuation]:
    """Do the same for the file of an archived run."""
    manifest, now = _consistent(package)
    if not package.record or not now.ended:
        raise Unreadable("it is no archived run")
    return manifest, now


def _consistent(package: ExportFile) -> tuple[Manifest, Continuation]:
    manifest = _manifest(package.manifest)
    if digest_of_entries(package.entries) != manifest.entries:
        raise Unreadable("its entries differ from the signed ones")
    if manifest.record != (digest_of(package.record) if package.record else ""):
        raise Unreadable("its record differs from the signed one")
    if sorted(package.contents) != list(manifest.contents) or any(
        digest_of(body) != digest for digest, body in package.contents.items()
    ):
        raise Unreadable("its contents differ from the signed ones")
    now = _folded(manifest.run, package.entries)
    told = (manifest.agent, manifest.requester, manifest.position, manifest.agents)
    if told != (now.agent, now.requester, now.position, now.agents):
        raise Unreadable("its manifest does not fit its entries")
    if blob_refs(now) - package.contents.keys():
        raise Unreadable("it lacks contents that it refers to")
    return manifest, now


def digest_of_entries(bodies: Iterable[str]) -> str:
    """Return one digest of all entries, in their order."""
    return digest_of_digests(digest_of(body) for body in bodies)


def digest_of_digests(digests: Iterable[str]) -> str:
    """Return the digest of a list of entry digests."""
    return sha256_of(list(digests))


def entries_signed(manifest: str) -> str:
    """Return the entries' digest that a manifest names, empty if the manifest cannot be read."""
    try:
        return _manifest(manifest).entries
    except CoreError:
        return ""


def secret_key_ids(texts: Iterable[str]) -> set[str]:
    """Return the ids of the keys that seal secrets in these texts.

    Without these keys the secrets cannot be opened.
    """
    return {found["key"] for text in texts for found in _SEALED.finditer(text)}


def _text(document: dict[str, Any]) -> str:
    """Write JSON; an export without a record does not name it, as in older releases."""
    if not document["record"]:
        del document["record"]
    return json.dumps(document, separators=(",", ":"))


def _manifest(text: str) -> Manifest:
    try:
        document: Any = json.loads(text)
        schema = document.get("schema") if isinstance(document, dict) else None
        if isinstance(schema, int) and schema > SCHEMA:
            raise NewerSchema(schema)
        return _MANIFESTS.validate_python(document)
    except (ValueError, RecursionError) as exc:
        raise Unreadable("its manifest cannot be read") from exc


def _folded(run: UUID, entries: Iterable[str]) -> Continuation:
    now = initial(run)
    for position, body in enumerate(entries, start=1):
        try:
            entry = codec.decode_entry(body)
            now = step(now, entry.events, head="", at=entry.at)
        except NewerSchema:
            raise
        except (CoreError, RecursionError) as exc:
            raise Unreadable(f"its entry {position}: {exc}") from exc
    return now
