"""Handing a run over to another installation, and taking one over: each in the caller's transaction.

What is handed over ends here, and can be written to a file as often as somebody asks. What is taken over
keeps its id and its journal, which is sealed anew with the keys of this installation; the last entry keeps
what the other one signed. No permission comes along: see runtime.core.forks.
"""

import json
import time
from datetime import datetime
from uuid import UUID

import psycopg.errors

from runtime import keyring
from runtime.core import portable
from runtime.core.contents import Content, referred
from runtime.core.continuation import Continuation, Phase, RunStatus, status_of
from runtime.core.errors import CoreError
from runtime.core.events import Exported, Imported
from runtime.core.portable import Package
from runtime.core.reducer import evolve
from runtime.core.replay import Entry, initial, step
from runtime.errors import (
    KeyMissing,
    NotAtRest,
    NotImportable,
    RunEnded,
    RunKnown,
    Tampered,
    TooLarge,
)
from runtime.ports import Actor
from runtime.store import blobs, continuations, gates, journal, runs, signals, waits
from runtime.store.pool import Connection

_AT_REST = frozenset({RunStatus.SUSPENDED, RunStatus.WAITING, RunStatus.PAUSED})
_A_DAY = 24 * 60 * 60 * 1000


def leave(connection: Connection, run: UUID, *, actor: Actor, at: datetime) -> list[UUID]:
    """End a run that no worker has and that has nothing to take up. Returns the gates that this closed.

    Raises NoSuchRun, RunEnded, NotAtRest, Tampered, KeyMissing, or NewerSchema.
    """
    row = runs.standing(connection, run)
    if row.ended:
        raise RunEnded(row.status)
    if row.owner is not None or row.status not in _AT_REST or signals.waiting(connection, run):
        raise NotAtRest
    now, _ = _history(connection, run)
    if (now.position, now.head) != (row.position, row.head):
        raise Tampered("the journal does not end where the run does")
    entry = Entry(at=at, events=(Exported(by=actor.person),))
    sealed = journal.seal(run, now.position + 1, now.head, entry)
    journal.append_first(connection, sealed)
    runs.end(connection, run, status=RunStatus.EXPORTED, head=sealed.seal.mac)
    continuations.drop(connection, run)
    waits.close_all(connection, run)
    return gates.close_open(connection, run)


def package(connection: Connection, run: UUID) -> str:
    """The file of an exported run. Raises RunEnded if it is removed, TooLarge, Tampered, KeyMissing, or NewerSchema."""
    now, bodies = _history(connection, run)
    if now.phase is not Phase.EXPORTED:  # what was exported is removed since
        raise RunEnded(RunStatus.EXPORTED)
    texts = {digest: blobs.text(connection, digest) for digest in sorted(referred(now))}
    manifest = portable.manifest_of(now, bodies, texts)
    signature = keyring.sign(keyring.EXPORTS, manifest)
    text = portable.encode(
        Package(
            key_id=signature.key_id,
            signature=signature.hex,
            manifest=manifest,
            entries=tuple(bodies),
            contents=texts,
        )
    )
    if len(text) > portable.MOST_BYTES:
        raise TooLarge
    return text


def arrive(connection: Connection, text: str, *, actor: Actor, at: datetime) -> Continuation:
    """Write a run that a listed key signed, due at once. Returns its state.

    Raises NotImportable, which says in one line why, or RunKnown.
    """
    if len(text) > portable.MOST_BYTES:
        raise NotImportable(f"it is larger than {portable.MOST_BYTES} bytes")
    try:
        given = portable.decode(text)
        key = _signer(given)
        manifest, now = portable.check(given)
    except CoreError as exc:
        raise NotImportable(str(exc)) from exc
    _check_local(connection, manifest)
    event = Imported(by=actor.person, manifest=given.manifest, key=key, signature=given.signature)
    return _write(connection, given, evolve(now, event), Entry(at=at, events=(event,)), actor)


def _write(
    connection: Connection, given: Package, now: Continuation, last: Entry, actor: Actor
) -> Continuation:
    entries, previous = [], ""
    for position, body in enumerate(given.entries, start=1):
        entries.append(journal.seal_text(now.run, position, previous, body))
        previous = entries[-1].seal.mac
    entries.append(journal.seal(now.run, len(entries) + 1, previous, last))
    row = {
        "id": now.run,
        "agent": now.agent,
        "requester": now.requester,
        "origin": now.origin,
        "token": actor.token,
        "business_key": None,
        "input": json.dumps(now.input),
        "status": status_of(now, held=False),
        "position": len(entries),
        "head": entries[-1].seal.mac,
        "unheard": len(now.unheard),
    }
    try:
        runs.insert(connection, row)
    except psycopg.errors.UniqueViolation as exc:
        raise RunKnown from exc
    for sealed in entries:
        journal.append_first(connection, sealed)
    texts = [Content(digest=digest, text=body) for digest, body in given.contents.items()]
    blobs.bring(connection, now.run, texts)
    return now


def _history(connection: Connection, run: UUID) -> tuple[Continuation, list[str]]:
    """The state of a run and the texts of its entries, verified from the first one on."""
    now, bodies = initial(run), []
    for sealed, entry in journal.history(connection, run):
        now = step(now, entry.events, head=sealed.seal.mac, at=entry.at)
        bodies.append(sealed.body)
    return now, bodies


def _signer(given: Package) -> str:
    """The public key that signed it, as hex, if it is one of those listed here."""
    known = keyring.listed(keyring.EXPORTS)
    if not any(key_id == given.key_id for key_id, _ in known):
        raise NotImportable(f"key {given.key_id!r} is not among those of ABEYANCE_IMPORT_KEYS")
    for key_id, key in known:
        if key_id == given.key_id and keyring.signed_by(
            keyring.EXPORTS, key, given.signature, given.manifest
        ):
            return key.hex()
    raise NotImportable("its signature is not that of its manifest")


def _check_local(connection: Connection, manifest: portable.Manifest) -> None:
    if manifest.run.version != 7 or (manifest.run.int >> 80) > time.time() * 1000 + _A_DAY:
        raise NotImportable("its id is not one that an installation makes")
    if runs.exists(connection, manifest.run):
        raise RunKnown
    for key_id in manifest.secrets:
        try:
            keyring.key_of(keyring.SECRETS, key_id)
        except KeyMissing as exc:
            raise NotImportable(
                f"it carries secrets sealed with key {key_id!r}, which is not in this ring of secrets"
            ) from exc
