"""Claims a due run, loads and verifies it, and starts its runner, or releases it with a reason."""

import logging
import queue
from functools import partial
from uuid import UUID, uuid4

import psycopg
from django.db import DataError

from runtime import broker
from runtime.core.documents.blobs import collect_blob_refs
from runtime.core.run.continuation import Phase
from runtime.core.values.errors import NewerSchema, NotJson
from runtime.core.values.texts import clean_text
from runtime.core.values.verdicts import VERDICTS
from runtime.errors import (
    KeyMissing,
    LeaseLost,
    ObjectStoreDown,
    Tampered,
    UnknownAgent,
    WorkerOutdated,
)
from runtime.execution import crash_loops
from runtime.execution.admission import versions
from runtime.execution.commit import LoadedRun
from runtime.execution.heartbeat import ClaimedRun
from runtime.execution.runner import Runner, RunnerQueue
from runtime.execution.worker import DATABASE_ERRORS, RecentRuns, WorkerContext
from runtime.ports.effects import EffectHandler
from runtime.store import leases, loading, pool
from runtime.store.leases import RunClaim
from runtime.store.loading import StoredRun
from runtime.store.tables import blobs, signals

log = logging.getLogger(__name__)

STORE_SECONDS = 10.0  # until a run that could not read the object store is due again


def advance(run: UUID, context: WorkerContext, *, isolated: bool = False) -> bool:
    """Claim the run and advance it until it is released. False if it cannot be claimed, or if this process drains.

    An `isolated` process claims only runs that may kill their workers, and releases each as soon as it has made
    progress.
    """
    if context.heartbeat.draining.started:
        return False
    context.slots.acquire()
    try:
        return _advance(run, context, isolated=isolated)
    finally:
        context.slots.release()


def prepare(context: WorkerContext) -> None:
    """Connect to Postgres and plan the claim of a run. Else the first run of this process would wait for it.

    An error of Postgres is logged: Celery would ignore it, and run a worker that reads no hints.
    """
    no_run, query = UUID(int=0), context.approvals.claim_query()
    try:
        with pool.pooled() as connection:
            loading.claim(connection, no_run, owner=uuid4(), also_read=query)
    except psycopg.Error as exc:
        log.warning("The first run of this worker waits for the plan of its claim: %s", exc)


def _advance(run: UUID, context: WorkerContext, *, isolated: bool) -> bool:
    skipped_at = context.backoff.find_skipped_signal(run)
    if skipped_at is not None:
        with pool.pooled() as connection:
            has_new_signal = leases.read(connection, run).signal_version != skipped_at
        if not has_new_signal:
            if context.backoff.forward_once(run):
                broker.dispatch(run)
            return False
    owner = uuid4()
    try:
        with pool.pooled() as connection:
            loaded = loading.claim(
                connection,
                run,
                owner=owner,
                worker=context.heartbeat.worker,
                isolated=isolated,
                also_read=context.approvals.claim_query(),
            )
        if loaded is None:
            log.info("Run %s: not claimed, it is not due or another worker has it", run)
            context.heartbeat.check_signals(run)
            return False
        claim, stored = loaded
        messages: RunnerQueue = queue.SimpleQueue()
        claimed = context.heartbeat.watch(claim, partial(messages.put, None))
        try:
            _work(context, claimed, messages, stored)
        except Exception as exc:
            _give_up(claim, context, exc)
        finally:
            context.heartbeat.unwatch(claim)
    except BaseException:
        context.heartbeat.abandon(run, owner)
        raise
    return True


def _work(
    context: WorkerContext, claimed: ClaimedRun, messages: RunnerQueue, stored: StoredRun
) -> None:
    """Verify the loaded data, and run the runner until it releases the run."""
    claim = claimed.claim
    # Before the run is verified and folded: that may be what kills its workers.
    if claim.lost_leases and _withhold(claim):
        return
    loaded = _load(claim, stored, context.recent)
    version_changes = _compare_versions(loaded, context.handler)
    now = Runner(context, claimed, messages, loaded, version_changes).work()
    # A long run goes back to this process, which need not verify its entries again.
    if not now.ended and context.recent.put(claim.run, loaded.rows, loaded.conversations, now):
        broker.keep(claim.run)
    context.backoff.drop(claim.run)


def _withhold(claim: RunClaim) -> bool:
    """Quarantine a run that killed its workers, or have another process try it. False if neither is called for."""
    reason = crash_loops.quarantine_reason(claim)
    if reason is not None:
        _quarantine(claim, reason)
    elif crash_loops.needs_isolation(claim):
        log.warning("Run %s: it lost two workers, so it is tried in another process", claim.run)
        with pool.pooled() as connection:
            leases.isolate(connection, claim)
        broker.notify_run(claim.run, inbox=False)
    else:
        return False
    return True


def _give_up(claim: RunClaim, context: WorkerContext, exc: Exception) -> None:
    """Release or quarantine the run, depending on the error."""
    run = claim.run
    match exc:
        case LeaseLost():
            log.warning("Run %s: lease lost, nothing more is written", run)
        case NewerSchema() | UnknownAgent() | WorkerOutdated():
            log.warning("Run %s: left unchanged for another worker: %s", run, exc)
            # Due again soon, with a hint at once: another worker may be able to advance it.
            with pool.pooled() as connection:
                context.backoff.add(run, leases.read(connection, run).signal_version)
                leases.back_off(connection, claim, seconds=leases.RESEND_SECONDS)
            broker.dispatch(run)
        case ObjectStoreDown():
            log.warning("Run %s: it waits, left unchanged for now: %s", run, exc)
            with pool.pooled() as connection:
                leases.await_store(connection, claim, clean_text(str(exc)))
                leases.back_off(connection, claim, seconds=STORE_SECONDS)
            broker.notify_run(run, inbox=False)
        case KeyMissing():
            log.critical("Run %s: left unchanged for now, a key is missing: %s", run, exc)
            _back_off(claim)
        case Tampered():
            _quarantine(claim, str(exc))
        case NotJson() | psycopg.DataError() | DataError():
            # A retry would fail in the same way, and pay for the same model call each time.
            _quarantine(claim, f"its next entry cannot be written: {exc}")
        case _ if isinstance(exc, DATABASE_ERRORS) and pool.is_passing(exc):
            log.warning("Run %s: Postgres is unreachable, the run is released later: %s", run, exc)
            context.heartbeat.abandon(run, claim.owner)
        case _:
            # An error in our code or in the installation: retry later, with an alarm.
            log.critical(
                "Run %s: left unchanged for now, after an unexpected error", run, exc_info=exc
            )
            _back_off(claim)


def _quarantine(claim: RunClaim, reason: str) -> None:
    log.critical("Run %s: quarantined: %s", claim.run, reason)
    with pool.pooled() as connection:
        leases.quarantine(connection, claim, clean_text(reason))
    broker.notify_run(claim.run, inbox=True)


def _back_off(claim: RunClaim) -> None:
    with pool.pooled() as connection:
        leases.back_off(connection, claim)


def _load(claim: RunClaim, stored: StoredRun, recent: RecentRuns) -> LoadedRun:
    """Return the verified state of the run at the claim's position."""
    cached = recent.pop(claim.run, stored.entries)
    now, entries = stored.state(
        claim, cached.conversations, verified_rows=len(cached.rows), kept_state=cached.now
    )
    if digests := collect_blob_refs(now):
        with pool.pooled() as connection:
            blobs.check_claimed(connection, digests)
    return LoadedRun(
        now=now,
        rows=list(entries.rows),
        conversations=cached.conversations,
        pending_signals=stored.read_pending_signals(),
        read=stored.read,
    )


def _compare_versions(loaded: LoadedRun, handler: EffectHandler) -> versions.VersionChanges | None:
    """Return the changes of the agents; None for a run that only has to end. Raises UnknownAgent or WorkerOutdated."""
    try:
        return versions.compare(loaded.now, handler)
    except (UnknownAgent, WorkerOutdated):
        if loaded.now.phase is Phase.CANCELLING or any(
            map(_is_end_signal, loaded.pending_signals.due)
        ):
            return None
        raise


def _is_end_signal(signal: signals.Signal) -> bool:
    match signal:
        case signals.CancelSignal():
            return True
        case signals.GateDecidedSignal():
            return VERDICTS[signal.decision.verdict].ends_run
        case _:
            return False
