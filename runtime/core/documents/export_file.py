"""Writes a run as one file for another installation, and checks that such a file is consistent.

`{"format", "key_id", "signature", "manifest", "entries", "contents"}`: `entries` are the exact texts of the journal,
`contents` the results stored by their hash. The signature covers `manifest`, a JSON text that names the run, its
agents and the digest of all entries. So it covers the whole file, and stays small enough to be kept in the journal of
the importing installation as evidence.

The file of a run whose first entries were removed has a `beginning` too, which the manifest covers: the state after
these entries, from which the others are folded.

The file of an archived run has a `record` too, which the manifest covers: what else is stored of the run. Its run has
ended, and its entries are the stored texts.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import TypeAdapter, ValidationError

from runtime.core.documents import codec, continuations
from runtime.core.documents.blobs import collect_blob_refs, hash_text
from runtime.core.run.continuation import Continuation, Phase
from runtime.core.run.reducer import make_initial_state, step
from runtime.core.values.enums import CallState
from runtime.core.values.errors import CoreError, NewerSchema, Unreadable
from runtime.core.values.json_values import hash_value

FORMAT = "signoff.run"
MAX_BYTES = 64 * 1024 * 1024

_MAC = re.compile(r"(?:[0-9a-f]{32}){1,2}")  # of an entry, whole or truncated
# The JSON form of a sealed value, also inside a text that was written as JSON again.
_SEALED = re.compile(r'\$secret\\*"\s*:\s*\\*"(?P<key>[^"\\:]+):')


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The signed part.

    `agents` are fingerprints by name, `secrets` the ids of the keys that seal values in the run. `entries` is the
    digest of the entries after the first `removed` ones.
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
    removed: int = 0
    beginning: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedBeginning:
    """Where a shortened journal begins: the state after the entries that were removed at `at`."""

    at: datetime
    state: Continuation


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportFile:
    """A parsed file. `manifest` is the exact signed text, `contents` are texts by digest.

    `record` and `beginning` are JSON texts, or empty.
    """

    key_id: str
    signature: str
    manifest: str
    entries: tuple[str, ...]
    contents: dict[str, str]
    record: str = ""
    beginning: str = ""


_MANIFESTS: TypeAdapter[Manifest] = TypeAdapter(Manifest)
_FILES: TypeAdapter[ExportFile] = TypeAdapter(ExportFile)


def build_manifest(
    now: Continuation,
    entries: Iterable[str],
    contents: dict[str, str],
    *,
    record: str = "",
    beginning: str = "",
) -> str:
    """Return the text to sign for a run whose journal is `entries`, from `beginning` on, and folds to `now`."""
    bodies = list(entries)
    manifest = Manifest(
        schema=codec.SCHEMA,
        run=now.run,
        agent=now.agent,
        requester=now.requester,
        position=now.position,
        entries=hash_entries(bodies),
        contents=tuple(sorted(contents)),
        agents=now.agents,
        secrets=tuple(sorted(collect_secret_key_ids([*bodies, *contents.values(), beginning]))),
        record=_hash_optional_text(record),
        removed=now.position - len(bodies),
        beginning=_hash_optional_text(beginning),
    )
    return _encode_document(_MANIFESTS.dump_python(manifest, mode="json"))


def encode_beginning(beginning: ExportedBeginning) -> str:
    """Write where a shortened journal begins."""
    state = continuations.encode_continuation(beginning.state)
    return json.dumps({"at": beginning.at.isoformat(), "state": state}, separators=(",", ":"))


def decode_beginning(package: ExportFile) -> ExportedBeginning | None:
    """Read where the journal of a file begins, None if it is whole. Raises Unreadable or NewerSchema."""
    if not package.beginning:
        return None
    try:
        document = json.loads(package.beginning)
        at, state = datetime.fromisoformat(document["at"]), document["state"]
        beginning = ExportedBeginning(at=at, state=continuations.decode_continuation(state))
        encode_beginning(beginning)  # it can be stored
    except NewerSchema:
        raise
    except (CoreError, LookupError, TypeError, ValueError, RecursionError) as exc:
        raise Unreadable(f"its beginning: {exc}") from exc
    is_after_entry = 0 < beginning.state.position < 1 << 53 and _MAC.fullmatch(beginning.state.head)
    if at.tzinfo is None or not is_after_entry:
        raise Unreadable("its beginning: it is no state after an entry")
    return beginning


def encode(package: ExportFile) -> str:
    """Write the file as compact JSON."""
    return _encode_document({"format": FORMAT, **_FILES.dump_python(package, mode="json")})


def decode(text: str) -> ExportFile:
    """Read a file. Raises Unreadable."""
    try:
        document = json.loads(text)
        if not isinstance(document, dict) or document.pop("format", None) != FORMAT:
            raise Unreadable("the file is not an exported run")
        return _FILES.validate_python(document)
    except RecursionError:
        raise Unreadable("it is nested too deep") from None
    except ValidationError as exc:
        raise Unreadable(f"the file is not an exported run: {exc.errors()[0]['msg']}") from exc
    except ValueError as exc:
        raise Unreadable(f"it is not JSON: {exc}") from exc


def check(package: ExportFile) -> tuple[Manifest, Continuation]:
    """Return the manifest and the state that the entries fold to, if the file is consistent.

    The signature is not checked here. Raises Unreadable or NewerSchema.
    """
    manifest, now = _check_consistency(package)
    if package.record or now.phase is not Phase.EXPORTED:
        raise Unreadable("its journal does not end with an export")
    if any(call.state is CallState.STARTED for f in now.frames.values() for call in f.calls):
        raise Unreadable("one of its calls is running")
    return manifest, now


def check_archived(package: ExportFile) -> tuple[Manifest, Continuation]:
    """Do the same for the file of an archived run."""
    manifest, now = _check_consistency(package)
    if not package.record or not now.ended:
        raise Unreadable("it is no archived run")
    return manifest, now


def _check_consistency(package: ExportFile) -> tuple[Manifest, Continuation]:
    manifest = _decode_manifest(package.manifest)
    if hash_entries(package.entries) != manifest.entries:
        raise Unreadable("its entries differ from the signed ones")
    if manifest.record != _hash_optional_text(package.record):
        raise Unreadable("its record differs from the signed one")
    if manifest.beginning != _hash_optional_text(package.beginning):
        raise Unreadable("its beginning differs from the signed one")
    if sorted(package.contents) != list(manifest.contents) or any(
        hash_text(body) != digest for digest, body in package.contents.items()
    ):
        raise Unreadable("its contents differ from the signed ones")
    begun = decode_beginning(package)
    start = make_initial_state(manifest.run) if begun is None else begun.state
    now = start
    for position, body in enumerate(package.entries, start=start.position + 1):
        try:
            entry = codec.decode_entry(body)
            now = step(now, entry.events, head="", at=entry.at)
        except NewerSchema:
            raise
        except (CoreError, RecursionError) as exc:
            raise Unreadable(f"its entry {position}: {exc}") from exc
    signed = (manifest.run, manifest.agent, manifest.requester, manifest.agents)
    if signed != (now.run, now.agent, now.requester, now.agents):
        raise Unreadable("its manifest does not fit its entries")
    if (manifest.removed, manifest.position) != (start.position, now.position):
        raise Unreadable("its manifest does not fit its entries")
    if collect_blob_refs(now) - package.contents.keys():
        raise Unreadable("it lacks contents that it refers to")
    return manifest, now


def hash_entries(bodies: Iterable[str]) -> str:
    """Return one digest of all entries, in their order."""
    return hash_digests(hash_text(body) for body in bodies)


def hash_digests(digests: Iterable[str]) -> str:
    """Return the digest of a list of entry digests."""
    return hash_value(list(digests))


def read_signed_entries(manifest: str) -> tuple[int, str]:
    """Return how many entries a manifest leaves out, and the digest of the others; empty if it cannot be read."""
    try:
        signed = _decode_manifest(manifest)
    except CoreError:
        return 0, ""
    return signed.removed, signed.entries


def collect_secret_key_ids(texts: Iterable[str]) -> set[str]:
    """Return the ids of the keys that seal secrets in these texts.

    Without these keys the secrets cannot be opened.
    """
    return {match["key"] for text in texts for match in _SEALED.finditer(text)}


def _encode_document(document: dict[str, Any]) -> str:
    return json.dumps(document, separators=(",", ":"))


def _hash_optional_text(text: str) -> str:
    return hash_text(text) if text else ""


def _decode_manifest(text: str) -> Manifest:
    try:
        return _MANIFESTS.validate_python(codec.upcast(json.loads(text)))
    except (Unreadable, ValueError, RecursionError) as exc:
        raise Unreadable("its manifest cannot be read") from exc
