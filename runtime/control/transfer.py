"""Transfers a run to another installation: exports and imports it. Restores an archived one into Postgres.

An export ends the run; an admin can build its file again at any time. An imported run keeps its id and journal, with
MACs by the keys of this installation. Its last entry keeps the manifest that the other installation signed. An import
inherits no permission: see runtime.core.run.forks.

A shortened journal is exported from where it begins. Files of its removed entries stay with this installation.
"""

import json
import time
from uuid import UUID

import psycopg.errors

from runtime import errors
from runtime.control import user_actions
from runtime.control.user_actions import notify, open_transaction
from runtime.core.documents import codec, export_file
from runtime.core.documents.blobs import Blob, collect_blob_refs
from runtime.core.documents.export_file import ExportedBeginning, ExportFile
from runtime.core.run.continuation import (
    Continuation,
    Phase,
    RunStatus,
    derive_status,
    list_steering_people,
)
from runtime.core.run.events import Exported, Imported
from runtime.core.run.reducer import Entry, evolve, make_initial_state, step
from runtime.core.values.errors import CoreError
from runtime.keyring import files, purposes, signatures
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.reads.run_rows import RunDetail
from runtime.store import archived_runs, gates, pool, runs
from runtime.store.tables import blobs, continuations, journal, pruning, signals

_AT_REST = frozenset({RunStatus.SUSPENDED, RunStatus.WAITING, RunStatus.PAUSED})
_A_DAY = 24 * 60 * 60 * 1000
_ADMINS_RESTORE = "Only admins may restore archived runs."


def export_run(*, run: UUID, actor: Actor) -> str:
    """End a run here, close its gates, and return its signed file; an exported run gives its file again.

    Raise, in this order: NoSuchRun; Forbidden (`not_eligible`); RunArchived; RunEnded; NotAtRest; TooLarge;
    Tampered, KeyMissing or NewerSchema.
    """
    user_actions.require_run_for_admins(run, actor, "Only admins may export runs.")
    approvals = wiring.resolve_approvals()
    with open_transaction() as connection:
        row = runs.lock_row(connection, run)
        if row.archived:
            raise errors.RunArchived
        if row.status != RunStatus.EXPORTED:
            if row.ended:
                raise errors.RunEnded(row.status)
            is_at_rest = row.owner is None and row.status in _AT_REST
            if not is_at_rest or signals.list_waiting_signals(connection, run):
                raise errors.NotAtRest
            now, _, _ = _read_history(connection, run)
            if (now.position, now.head) != (row.position, row.head):
                raise errors.Tampered("the journal does not end where the run does")
            entry = Entry(at=pool.read_clock(connection), events=(Exported(by=actor.person),))
            sealed = journal.sign(run, now.position + 1, now.head, entry)
            journal.append_first(connection, sealed)
            runs.end_run(connection, run, status=RunStatus.EXPORTED, head=sealed.seal.mac)
            runs.delete_rows(connection, run, "runtime_storedcontinuation", "runtime_waitingcall")
            closed = gates.close_open(connection, run)
            reason = f"{actor.person} exported the run."
            approvals.close(run=run, gates=closed, actor=None, reason=reason)
            notify(run, inbox=True, hint=False)
        approvals.record_audit(run=run, actor=actor, act="exported", detail={})
        return _build_file(connection, run)


def import_run(*, data: bytes, actor: Actor) -> UUID:
    """Import a run that another installation exported: `data` is its file. Return its id.

    Raise, in this order: Forbidden; NotImportable, which says in one line why; RunKnown.
    """
    wiring.resolve_access().require(actor, "admin")
    try:
        text = data.decode()
    except UnicodeDecodeError as exc:
        raise errors.NotImportable("it is not UTF-8") from exc
    with open_transaction() as connection:
        if len(text) > export_file.MAX_BYTES:
            raise errors.NotImportable(f"it is larger than {export_file.MAX_BYTES} bytes")
        try:
            file = export_file.decode(text)
            key = _verify_signer(file)
            manifest, now = export_file.check(file)
        except CoreError as exc:
            raise errors.NotImportable(str(exc)) from exc
        _check_local(connection, manifest)
        event = Imported(by=actor.person, manifest=file.manifest, key=key, signature=file.signature)
        now, at = evolve(now, event), pool.read_clock(connection)
        _write(connection, file, now, Entry(at=at, events=(event,)), actor)
        wiring.resolve_approvals().record_audit(run=now.run, actor=actor, act="imported", detail={})
        notify(now.run)
        if not wiring.resolve_catalogue().is_published(now.agent):
            raise errors.NotImportable(f"there is no agent {now.agent!r} here")
    return now.run


def restore(*, run: UUID, reason: object, actor: Actor) -> RunDetail:
    """Put an archived run back into Postgres. It keeps its journal with every MAC.

    Raise, in this order: NoSuchRun; Forbidden (`not_eligible`); InvalidInput naming `reason`; NotArchived;
    ObjectStoreDown, Tampered or KeyMissing, with nothing changed.
    """
    user_actions.require_run_for_admins(run, actor, _ADMINS_RESTORE)
    reason_text = user_actions.validate_reason(reason, "is required to restore a run")
    with open_transaction() as connection:
        runs.lock_row(connection, run)
        archived_run = archived_runs.read(connection, run)
        if archived_run is None:
            raise errors.NotArchived
        _put_back(archived_run, reason_text, actor)
    return user_actions.require_readable_run(run, actor)


def restore_file(*, data: bytes, reason: object, actor: Actor) -> UUID:
    """Restore a run from the bytes of its file, in case the object store has lost it. Return its id.

    Raise, in this order: Forbidden; InvalidInput naming `reason`; NotImportable; NotArchived.
    """
    wiring.resolve_access().require(actor, "admin")
    reason_text = user_actions.validate_reason(reason, "is required to restore a run")
    try:
        archived_run = archived_runs.parse(None, data)
        with open_transaction() as connection:
            runs.lock_row(connection, archived_run.run)
            _put_back(archived_run, reason_text, actor)
    except errors.NoSuchRun as exc:
        raise errors.NotImportable("its run is not one of this installation") from exc
    except errors.Tampered as exc:
        raise errors.NotImportable(str(exc)) from exc
    return archived_run.run


def _build_file(connection: pool.Connection, run: UUID) -> str:
    """Return the file of an exported run. Raise RunEnded if retention has taken its payloads, or TooLarge."""
    now, bodies, beginning = _read_history(connection, run)
    if now.phase is not Phase.EXPORTED:  # retention has erased the journal
        raise errors.RunEnded(RunStatus.EXPORTED)
    texts = {
        digest: blobs.read_text(connection, digest) for digest in sorted(collect_blob_refs(now))
    }
    texts |= blobs.read_remembered_bodies(
        connection, [remembered.digest for remembered in now.memory]
    )
    manifest = export_file.build_manifest(now, bodies, texts, beginning=beginning)
    signature = signatures.sign(purposes.EXPORTS, manifest)
    text = export_file.encode(
        ExportFile(
            key_id=signature.key_id,
            signature=signature.hex,
            manifest=manifest,
            entries=tuple(bodies),
            contents=texts,
            beginning=beginning,
        )
    )
    if len(text) > export_file.MAX_BYTES:
        raise errors.TooLarge
    return text


def _write(
    connection: pool.Connection, file: ExportFile, now: Continuation, last: Entry, actor: Actor
) -> None:
    begun = export_file.decode_beginning(file)
    start = make_initial_state(now.run) if begun is None else begun.state
    entries, previous = [], start.head
    for position, body in enumerate(file.entries, start=start.position + 1):
        entries.append(journal.sign_text(now.run, position, previous, body))
        previous = entries[-1].seal.mac
    entries.append(journal.sign(now.run, now.position + 1, previous, last))
    row = {
        "id": now.run,
        "agent": now.agent,
        "requester": now.requester,
        "origin": list_steering_people(now),
        "token": actor.token,
        "business_key": None,
        "input": json.dumps(now.input),
        "status": derive_status(now, leased=False),
        "position": entries[-1].position,
        "head": entries[-1].seal.mac,
        "unheard": len(now.unheard),
    }
    try:
        runs.insert(connection, row)
    except psycopg.errors.UniqueViolation as exc:
        raise errors.RunKnown from exc
    if begun is not None:
        mark = pruning.PruneMark(position=start.position, head=start.head, at=begun.at)
        pruning.restore(connection, mark, start)
        continuations.store(connection, start)
        runs.set_base(connection, now.run, start.position)
    for sealed in entries:
        journal.append_first(connection, sealed)
    texts = [Blob(digest=digest, text=body) for digest, body in file.contents.items()]
    blobs.store(connection, now.run, texts)


def _read_history(connection: pool.Connection, run: UUID) -> tuple[Continuation, list[str], str]:
    """Return the state of a run, the texts of its verified entries, and where they begin, empty if none was removed."""
    history = journal.read_history(connection, run)
    now, bodies, beginning = history.start, [], ""
    if now.position and history.mark.at is not None:
        beginning = export_file.encode_beginning(ExportedBeginning(at=history.mark.at, state=now))
    for sealed, entry in history.entries:
        now = step(now, entry.events, head=sealed.seal.mac, at=entry.at)
        bodies.append(codec.decode_stored_text(sealed.body))
    return now, bodies, beginning


def _verify_signer(file: ExportFile) -> str:
    """Return the public key that signed the file, as hex. Raise NotImportable unless IMPORT_KEYS lists it."""
    keys = files.list_import_keys(purposes.EXPORTS)
    if not any(key_id == file.key_id for key_id, _ in keys):
        raise errors.NotImportable(f"key {file.key_id!r} is not among those of SIGNOFF_IMPORT_KEYS")
    for key_id, key in keys:
        if key_id == file.key_id and signatures.is_signed_by(
            purposes.EXPORTS, key, file.signature, file.manifest
        ):
            return key.hex()
    raise errors.NotImportable("its signature does not verify")


def _check_local(connection: pool.Connection, manifest: export_file.Manifest) -> None:
    if manifest.run.version != 7 or (manifest.run.int >> 80) > time.time() * 1000 + _A_DAY:
        raise errors.NotImportable("its id is not valid")
    if runs.has_run(connection, manifest.run):
        raise errors.RunKnown
    for key_id in manifest.secrets:
        try:
            files.read_key(purposes.SECRETS, key_id)
        except errors.KeyMissing as exc:
            raise errors.NotImportable(
                f"it carries secrets sealed with key {key_id!r}, which is not in this ring of secrets"
            ) from exc


def _put_back(archived_run: archived_runs.Archive, reason: str, actor: Actor) -> None:
    with open_transaction() as connection:
        archived_runs.put_back(connection, archived_run)
        wiring.resolve_approvals().record_audit(
            run=archived_run.run, actor=actor, act="restored", detail={"reason": reason}
        )
        notify(archived_run.run, hint=False)
