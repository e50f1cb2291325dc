"""The message broker: sends hints (that a run or a job waits) and live updates. Nothing else sends.

The hint of a run is its id in a list. That of a job is a Celery message.

Background threads send, so a decision never waits for the broker and opens no connection to it. Their queues are
bounded. Lost messages do no harm: the sweeper sends another hint, and a page that missed an update polls.

A process has a queue of its own for long runs that it released and has in memory (Temporal's sticky queue). The hint of
such a run goes there while the process listens, else to the queue of all workers. This saves time and promises nothing:
if the process ends with the hint, the sweeper sends another one to all workers.
"""

import base64
import functools
import json
import logging
import os
import queue
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar
from uuid import UUID, uuid4

import redis
from celery import current_app
from django.conf import settings
from redis.backoff import NoBackoff
from redis.retry import Retry

log = logging.getLogger(__name__)

NEW, RESUMED, JOBS = QUEUES = "runs", "resumed", "jobs"  # the last one has Celery's messages
JOB_KINDS = frozenset({"trial", "replay", "preview"})  # in place of a queue: a job of this kind
STICKY = "sticky"  # in place of a queue: that of the process that keeps the run, else RESUMED
_KEEP = "keep"  # in place of a queue: no hint, but a note that this process keeps the run
QUEUE_SIZE = 1000
BATCH = 200  # hints that a publisher sends at once
CHANNEL = "signoff:doorbell"
ROOM = 10_000  # hints in a queue; with more, the sweeper would repeat a hint before a worker receives it
GATHER_SECONDS = 0.2  # live updates of this period are sent together

Message = tuple[UUID, str]  # a run and the queue of its message

S = TypeVar("S", "DispatchThread", "Notifier")
_own_queue: str | None = None  # of this process alone, None if it reads no queue
_lock = threading.Lock()
LISTENS_SECONDS = 3  # a process that has not repeated its note for so long does not listen
KEEPS_SECONDS = 24 * 3600  # how long the broker remembers who keeps a run
UNREAD_SECONDS = 60  # how long the hints of a process that ended stay in the broker

_LISTENS = "signoff:listens:"

# KEYS: the key of the run, the queue of all workers. ARGV: the message.
_SEND = f"""
    local queue = redis.call('GET', KEYS[1])
    if queue and redis.call('EXISTS', '{_LISTENS}' .. queue) == 1 then
        redis.call('LPUSH', queue, ARGV[1])
        redis.call('EXPIRE', queue, {UNREAD_SECONDS})
    else
        redis.call('LPUSH', KEYS[2], ARGV[1])
    end
"""
# KEYS: the note that a process listens, its queue, the queue of all workers.
_LEAVE = """
    redis.call('DEL', KEYS[1])
    while redis.call('RPOPLPUSH', KEYS[2], KEYS[3]) do end
"""


class DispatchThread:
    """Sends hints from one daemon thread with a bounded queue. It does not survive a fork."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self._queue: queue.Queue[Message] = queue.Queue(QUEUE_SIZE)
        threading.Thread(target=self._run, name="dispatch", daemon=True).start()

    def put(self, run: UUID, queue_name: str) -> None:
        """Queue a hint, or drop it if the queue is full."""
        try:
            self._queue.put_nowait((run, queue_name))
        except queue.Full:
            log.warning("Run %s: hint dropped, %s are waiting for the broker", run, QUEUE_SIZE)

    def flush(self) -> None:
        """Wait until every queued hint was sent or given up."""
        self._queue.join()

    def _run(self) -> None:
        while True:
            hints = [self._queue.get()]
            while len(hints) < BATCH and not self._queue.empty():  # only this thread receives
                hints.append(self._queue.get())
            try:
                send_all([hint for hint in hints if hint[1] != _KEEP])
                for run in (run for run, name in hints if name == _KEEP):
                    assert _own_queue is not None
                    with _reach_broker() as broker:
                        note_keeper(broker, run, _own_queue)
            except Exception as exc:  # the sweeper sends them again
                unsent = len(hints) - 1
                log.warning("Run %s: hint not sent, nor %d more: %s", hints[0][0], unsent, exc)
            for _ in hints:
                self._queue.task_done()


_thread: DispatchThread | None = None


class Notifier:
    """Publishes live updates from one daemon thread, together for all changes since its last message."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self._lock = threading.Lock()  # entered in C, unlike the condition
        self._changed = threading.Condition(self._lock)
        self._runs: dict[int, bool] = {}  # by the number of the id, which is hashed in C
        self._people: set[str] = set()
        self._reaches = True
        threading.Thread(target=self._run, name="notifier", daemon=True).start()

    def put(self, run: UUID, *, inbox: bool) -> None:
        """Publish soon that a run has changed, and with `inbox` that inboxes have."""
        number = run.int
        pending = self._runs.get(number)
        if pending or (pending is not None and not inbox):
            return  # the thread publishes this run later than now, so no lock is needed to read the dict
        with self._lock:
            if len(self._runs) < QUEUE_SIZE or number in self._runs:
                self._runs[number] = inbox or self._runs.get(number, False)
            self._changed.notify()

    def put_person(self, person: str) -> None:
        """Publish soon that the rights of a person may have changed."""
        with self._lock:
            self._people.add(person)
            self._changed.notify()

    def _run(self) -> None:
        pause = threading.Event()
        while True:
            with self._lock:
                self._changed.wait_for(lambda: self._runs or self._people)
            pause.wait(GATHER_SECONDS)
            with self._lock:
                runs, self._runs = self._runs, {}
                people, self._people = self._people, set()
            inbox_by_run = {str(UUID(int=number)): inbox for number, inbox in runs.items()}
            try:
                self._publish([{"runs": inbox_by_run}, *[{"person": person} for person in people]])
            except Exception:  # or no update would be published until this process ends
                log.exception("Live updates were not published")

    def _publish(self, updates: Sequence[Mapping[str, object]]) -> None:
        try:
            with _reach_broker() as broker:
                for update in updates:
                    broker.publish(CHANNEL, json.dumps(update))
        except ConnectionError as exc:
            if self._reaches:
                log.warning("Live updates pause until the broker is back: %s", exc)
            self._reaches = False
        else:
            self._reaches = True


_notifier: Notifier | None = None


def dispatch(run: UUID, queue_name: str = RESUMED) -> None:
    """Have a worker claim the run soon. Returns at once, never raises.

    Workers prefer RESUMED runs to NEW ones. STICKY is for runs that a signal resumes.
    """
    global _thread
    with _lock:
        _thread = _ensure_own_thread(_thread, DispatchThread)
    _thread.put(run, queue_name)


def flush(seconds: float) -> None:
    """Wait until the hints of this process are sent or given up, at most so long. Call it before the process ends."""
    if _thread is not None and _thread.process == os.getpid():
        waiter = threading.Thread(target=_thread.flush, daemon=True)
        waiter.start()
        waiter.join(seconds)


def open_own_queue() -> str:
    """Give this process a queue of its own, and return its name. It gets hints after `listen` and `keep`."""
    global _own_queue
    _own_queue = make_queue_name(RESUMED)
    return _own_queue


def keep(run: UUID) -> None:
    """Prefer this process for the next STICKY hint of a run. Returns at once, never raises."""
    if _own_queue is not None:
        dispatch(run, _KEEP)


def listen() -> None:
    """Tell other processes that this one reads its own queue for the next three seconds. Raises ConnectionError.

    A full broker refuses the note, but its hints can be read: then those of this process go to all workers.
    """
    if _own_queue is not None:
        with _reach_broker() as broker, suppress(redis.ResponseError):
            note_listening(broker, _own_queue)


def stop_listening() -> None:
    """Have the hints of this process go to all workers, also those that it has not read. Repeating it has no effect."""
    if _own_queue is not None:
        with suppress(ConnectionError), _reach_broker() as broker:
            note_gone(broker, _own_queue, RESUMED)


def list_queues_with_room() -> frozenset[str]:
    """Return the queues with fewer than 10,000 hints. Raises ConnectionError if the broker is unreachable."""
    with _reach_broker() as broker:
        return frozenset(name for name in QUEUES if int(broker.llen(name)) < ROOM)


def take_hint(queues: Sequence[str], seconds: float) -> str | None:
    """Take a hint from the first of these queues that has one. Wait so long for it, less than two seconds.

    Any program that reaches the broker may have written it. Raises ConnectionError.
    """
    with _reach_broker() as broker:
        reply: Any = broker.brpop(list(queues), timeout=seconds)
    return None if reply is None else reply[1].decode(errors="replace")


def notify_run(run: UUID, *, inbox: bool) -> None:
    """Tell open pages that a run has changed, and whether an inbox has. Returns at once, never raises."""
    notifier = _notifier
    if notifier is None or notifier.process != os.getpid():
        notifier = _start_notifier()
    notifier.put(run, inbox=inbox)


def notify_person(person: str) -> None:
    """Have web processes check whether the open pages of a person may still listen. Returns at once, never raises."""
    _start_notifier().put_person(person)


def send_all(hints: Sequence[Message]) -> None:
    """Send hints now, with one command for each queue. Raises ConnectionError."""
    if not hints:
        return
    messages: defaultdict[str, list[str]] = defaultdict(list)
    sticky: list[UUID] = []
    for run, queue_name in hints:
        if queue_name == STICKY:
            sticky.append(run)
        elif queue_name in JOB_KINDS:
            messages[JOBS].append(_message(run, name_job_task(queue_name)))
        else:
            messages[queue_name].append(str(run))
    with _reach_broker() as broker:
        for run in sticky:
            try:
                send_sticky(broker, run, str(run), RESUMED)
            except redis.ResponseError:  # a broker whose access rules forbid scripts
                broker.lpush(RESUMED, str(run))
        for queue_name, texts in messages.items():
            broker.lpush(queue_name, *texts)


def name_job_task(kind: str) -> str:
    """Return the name of the task that performs jobs of a kind."""
    return f"runtime.{kind}"


def make_queue_name(shared: str) -> str:
    """Return the name of this process's own queue, besides the shared one."""
    return f"{shared}.{uuid4().hex}"


def send_sticky(broker: "redis.Redis", run: UUID, message: str, shared: str) -> None:
    """Send a message to the process that keeps the run, if it listens, else to the shared queue."""
    broker.eval(_SEND, 2, _make_keeper_key(run), shared, message)


def note_keeper(broker: "redis.Redis", run: UUID, queue_name: str) -> None:
    """Record that the process with this queue keeps the run."""
    broker.set(_make_keeper_key(run), queue_name, ex=KEEPS_SECONDS)


def note_listening(broker: "redis.Redis", queue_name: str) -> None:
    """Record that a process reads this queue for the next three seconds."""
    broker.set(f"{_LISTENS}{queue_name}", 1, ex=LISTENS_SECONDS)


def note_gone(broker: "redis.Redis", queue_name: str, shared: str) -> None:
    """Record that no process reads this queue any longer, and give its hints to all workers."""
    broker.eval(_LEAVE, 3, f"{_LISTENS}{queue_name}", queue_name, shared)


def _message(job: UUID, task_name: str) -> str:
    """Build the Celery message of a job as kombu stores it in Redis.

    `send_task` builds the same with a hundred times the work. A test compares the two.
    """
    headers, _, (_, keywords, embedded), _ = _build_shared_parts(task_name)
    task = str(uuid4())
    task_headers = {"id": task, "root_id": task, "argsrepr": repr([str(job)])}
    return json.dumps(
        {
            "body": base64.b64encode(
                json.dumps([[str(job)], keywords, embedded]).encode()
            ).decode(),
            "content-encoding": "utf-8",
            "content-type": "application/json",
            "headers": {**headers, **task_headers},
            "properties": {
                "correlation_id": task,
                "delivery_mode": 2,
                "delivery_info": {"exchange": "", "routing_key": JOBS},
                "priority": 0,
                "body_encoding": "base64",
                "delivery_tag": task,
            },
        }
    )


@functools.cache
def _build_shared_parts(name: str) -> Any:
    """Return the parts that all messages of a task share: headers, properties, body, event."""
    return current_app.amqp.as_task_v2("", name, ignore_result=True)


@contextmanager
def _reach_broker() -> "Iterator[redis.Redis]":
    """Yield the broker client. Raises ConnectionError if the broker is unreachable, or refuses a command."""
    try:
        yield _open_broker(settings.REDIS_URL, os.getpid(), threading.get_ident())
    except redis.ResponseError as exc:
        problem = f"the broker refuses a command: {exc}"
        if str(exc).startswith("WRONGTYPE"):
            problem += "; another program uses the same names: give REDIS_URL a database of its own"
        raise ConnectionError(problem) from exc
    except (redis.RedisError, OSError) as exc:
        raise ConnectionError(f"the broker is unreachable: {exc}") from exc


@functools.lru_cache(64)
def _open_broker(url: str, process: int, thread: int) -> "redis.Redis":
    """Open the connection of a thread. To take one of a pool for each command would double their processor time."""
    return redis.Redis.from_url(
        url,
        socket_timeout=2,
        socket_connect_timeout=1,
        health_check_interval=25,
        retry=Retry(NoBackoff(), 1),
        single_connection_client=True,
    )


def _start_notifier() -> Notifier:
    """Return the notifier of this process, and start it if there is none."""
    global _notifier
    with _lock:
        _notifier = _ensure_own_thread(_notifier, Notifier)
        return _notifier


def _ensure_own_thread(thread: S | None, make: Callable[[], S]) -> S:
    """Return the thread of this process, and make it after a fork: threads do not survive one."""
    return thread if thread is not None and thread.process == os.getpid() else make()


def _make_keeper_key(run: UUID) -> str:
    return f"signoff:kept:{run}"
