"""Lists all processes with their commands. Every launcher, here or elsewhere, starts them from this table."""

import sys
from dataclasses import dataclass

from config.env.environment import DRAIN_SECONDS

CONNECTIONS_OF_A_WORKER = 10  # four of the engine's pool, five of Django's, and the heartbeat's
# A web process has up to 13, a busy sweeper about 34; the rest is for commands, and operators with psql.
CONNECTIONS_OF_OTHERS = 64

ISOLATED_PROCESSES = 4  # that try suspected runs at once

# Seconds that a worker may need besides draining: to start its shutdown, release its runs and close.
WORKER_MARGIN = 6.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One kind of process. `stop_timeout` is how many seconds it may take to stop before it is killed.

    `decides` says that people decide through it: it alone needs the private key that signs decisions.
    """

    name: str
    does: str
    command: tuple[str, ...]
    stop_timeout: float
    decides: bool = False


def list_processes(
    *, bind: str = "127.0.0.1:8000", concurrency: int = 256, drain: float = DRAIN_SECONDS
) -> tuple[Process, ...]:
    """List every kind of process, in stop order.

    `bind` is the address of the web server: `host:port`, or `fd://N` for an inherited socket.
    `concurrency` is how many runs one worker process holds at once, most of which wait; to use more cores, start more
    workers.
    `drain` is how many seconds a stopping worker waits for its running effects.
    """
    return (
        Process(
            name="web",
            does="answers people and programs",
            command=(sys.executable, "-m", "config.web", "--bind", bind),
            stop_timeout=2.0,
            decides=True,
        ),
        Process(
            name="sweeper",
            does="dispatches due runs",
            command=(sys.executable, "manage.py", "sweep"),
            stop_timeout=2.0,
        ),
        Process(
            name="worker",
            does="advances runs",
            command=_build_worker_command(concurrency, "resumed,runs"),
            stop_timeout=drain + WORKER_MARGIN,
        ),
        Process(
            name="isolated",
            does="tries runs that may kill their worker, in processes of their own",
            command=_build_worker_command(ISOLATED_PROCESSES, "isolated"),
            stop_timeout=drain + WORKER_MARGIN,
        ),
    )


def count_connections(workers: int) -> int:
    """Return how many connections Postgres needs for this table with so many workers and the isolated ones."""
    return CONNECTIONS_OF_OTHERS + (workers + ISOLATED_PROCESSES) * CONNECTIONS_OF_A_WORKER


def _build_worker_command(concurrency: int, queues: str) -> tuple[str, ...]:
    return (
        *(sys.executable, "-m", "config.worker"),
        *("--queues", queues, "--concurrency", str(concurrency)),
    )
