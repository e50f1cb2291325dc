"""Configures Celery: how jobs are delivered, and how a worker starts and stops.

Postgres is the source of truth. A message is only a hint with the id of a job, so it may be lost, repeated or late. The
settings bound the time that a process waits for a broken broker.
"""

import gc
import logging
import os
from typing import TYPE_CHECKING, Any

import celery
import django
from celery import signals
from django.conf import settings

from config.broker import transport
from runtime import broker
from runtime.store import pool

if TYPE_CHECKING:
    from config.broker.consumer import HintReader

queues = [broker.RESUMED, broker.NEW]  # of runs, which a worker reads
_hints: "HintReader | None" = None

CONNECTION_SECONDS = 30.0  # how long a thread waits for one of Django's connections

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")


# No Celery fixups for Django: they run Django's checks, which import every page, and search for connections to close
# before and after each task, although runs close their own.
app = celery.Celery("signoff", fixups=[])
app.conf.update(
    **transport.build_celery_settings(settings.REDIS_URL),
    # Data only: a client of the broker must not be able to run code here.
    task_serializer="json",
    result_serializer="json",
    accept_content=["json"],
    result_accept_content=["json"],
    # State is in Postgres.
    task_ignore_result=True,
    result_backend=None,
    # The sweeper sends the hint of a lost worker again, so the broker does not track hints.
    task_acks_late=False,
    task_default_queue=broker.JOBS,
    task_create_missing_queues=False,
    task_queues={broker.JOBS: {"no_ack": True}},
    worker_prefetch_multiplier=1,
    worker_disable_prefetch=True,
    worker_disable_rate_limits=True,
    # Flower and `celery events` enable task events while they run.
    worker_enable_remote_control=True,
    worker_send_task_events=False,
    # Threads cannot be cancelled. A task that outlives its message fails the check of its lease's epoch.
    worker_cancel_long_running_tasks_on_connection_loss=False,
    worker_soft_shutdown_timeout=0.0,
    worker_hijack_root_logger=False,
    broker_connection_max_retries=None,
    broker_connection_retry_on_startup=True,
    broker_transport_options={
        "priority_steps": [0],  # one list for each queue instead of four
        # Without these limits a stopped broker would block its callers without end.
        "socket_timeout": 5,
        "socket_connect_timeout": 2,
        "socket_keepalive": True,
        "health_check_interval": 25,
        "retry_on_timeout": True,
    },
    task_publish_retry_policy={"max_retries": 1, "interval_start": 0, "interval_max": 0.2},
    timezone="UTC",
)


@signals.import_modules.connect
def _set_up(**_: Any) -> None:
    """Set up Django before tasks are imported."""
    django.setup()


app.autodiscover_tasks(["runtime"])


@signals.worker_init.connect
def _equip(**_: Any) -> None:
    """Check the services, then load and publish the agents, before the worker reads its first message."""
    from config.broker import consumer  # noqa: F401 - it replaces commands of remote control

    equip("worker")


def share_connections() -> None:
    """Let the threads share a pool of Django's connections. Call it before the first one is opened."""
    database = settings.DATABASES["default"]
    database["CONN_MAX_AGE"] = 0
    database["OPTIONS"]["pool"] = {
        "min_size": 0,
        "max_size": pool.DJANGOS_OF_A_WORKER,
        "timeout": CONNECTION_SECONDS,
        "name": "django",
    }


def equip(process: str) -> None:
    """Check the services, then load and publish the agents. Raises SystemExit."""
    from config import wiring
    from runtime.core.documents import continuations
    from runtime.upkeep import startup

    # The name of this process's connections in pg_stat_activity
    os.environ.setdefault("PGAPPNAME", f"signoff {process} {os.getpid()}")
    try:
        startup.require_database()
        startup.require_broker()
        startup.require_keys(signing=False)
        startup.require_durable_stores()
        startup.require_keys_of_live_runs()
        wiring.connect_effects()
        continuations.prepare()
    except Exception as problem:
        # Celery would ignore the error and run a worker that reads its queue without working.
        reason = " ".join(str(problem).split())
        raise SystemExit(f"signoff: this worker cannot start: {reason}") from problem
    _collect_from_here()


def _collect_from_here() -> None:
    """Exempt all present objects from garbage collection, and collect later ones less often.

    Loaded modules stay in memory, and checking them took a tenth of the time. The present garbage stays too, 2 MB:
    finding it would take a tenth of a start.
    """
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    gc.enable()


@signals.worker_ready.connect
def _report(sender: Any, **_: Any) -> None:
    """Start the heartbeat, so that this worker counts as alive before its first run, then read hints."""
    global _hints
    from config.broker.consumer import HintReader
    from runtime import tasks
    from runtime.execution.claim import prepare

    context = tasks.open_worker_context()
    prepare(context)
    draining = context.heartbeat.draining
    concurrency = sender.controller.concurrency
    _hints = HintReader(queues, concurrency, tasks.advance_run, lambda: draining.started)
    _hints.start()


@signals.worker_shutting_down.connect
def _drain(**_: Any) -> None:
    """Drain the worker. Runs in the handler of the stop signal; Celery then waits for its tasks."""
    from runtime import tasks

    tasks.drain()


@signals.worker_shutdown.connect
def _exit(**_: Any) -> None:
    from runtime import tasks

    if _hints is not None:
        tasks.drain()  # Celery ends without a stop signal after an error of its own
        _hints.join()
    hung = tasks.is_hung()
    if not tasks.stop():
        # Python would wait for the thread of an effect whose run was released.
        logging.shutdown()
        os._exit(1 if hung else 0)
