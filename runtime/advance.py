"""Claims a run, loads its verified state, and has a coordinator take it as far as it goes."""

import logging
import queue
from uuid import UUID

from runtime import continuations, database, dispatch, journal, leases
from runtime.coordinator import Bench, Coordinator, News
from runtime.core.continuation import Continuation
from runtime.core.errors import NewerSchema
from runtime.errors import KeyMissing, LeaseLost, Tampered
from runtime.leases import Claim
from runtime.ports import (
    EffectHandler,
    UnknownAgent,
)
from runtime.scribe import OUT_OF_REACH

log = logging.getLogger(__name__)


def advance(run: UUID, bench: Bench) -> bool:
    """Claim the run and take it as far as it goes. False if it is not to be had."""
    with database.pooled() as connection:
        claim = leases.claim(connection, run)
    if claim is None:
        log.info("run %s is not to be had: nothing is due, or another worker has it", run)
        bench.heartbeat.poke(run)
        return False
    inbox: queue.SimpleQueue[News] = queue.SimpleQueue()
    with bench.heartbeat.holding(claim, lambda: inbox.put(None)) as held:
        try:
            Coordinator(bench, held, inbox, _load(claim, bench.handler)).work()
        except LeaseLost:
            log.warning("run %s: the lease was lost, nothing more is written", run)
        except (NewerSchema, UnknownAgent) as exc:
            log.error("run %s left untouched for now: %s", run, exc)
            _back_off(claim)
        except KeyMissing as exc:
            log.critical("key missing, run %s left untouched for now: %s", run, exc)
            _back_off(claim)
        except Tampered as exc:
            log.critical("run %s quarantined: %s", run, exc)
            with database.pooled() as connection:
                leases.quarantine(connection, claim, str(exc))
            dispatch.ring(run, inbox=True)
        except OUT_OF_REACH as exc:
            log.warning("run %s: Postgres is out of reach, the lease will end: %s", run, exc)
        except Exception:
            # A fault of ours or of the installation: not at once again, and not without an alarm.
            log.critical("run %s left as it is for now", run, exc_info=True)
            _back_off(claim)
    return True


def _back_off(claim: Claim) -> None:
    with database.pooled() as connection:
        leases.back_off(connection, claim)


def _load(claim: Claim, handler: EffectHandler) -> Continuation:
    """The verified state at the claim's position, of agents that this process has."""
    with database.pooled() as connection:
        base = continuations.load(connection, claim.run, claim.base)
        now = journal.replay(connection, base, position=claim.position, head=claim.head)
    for agent in {now.agent, *(frame.agent for frame in now.frames.values())}:
        handler.agent(agent)
    return now
