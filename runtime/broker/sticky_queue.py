"""The queue of one worker process, for long runs that it released and has in memory (Temporal's sticky queue).

The hint of such a run goes to its process while that process listens, else to the queue of all workers. This saves
time and promises nothing: if the process ends with the hint, the sweeper sends another one to all workers.
"""

from typing import TYPE_CHECKING
from uuid import UUID, uuid4

if TYPE_CHECKING:
    import redis

LISTENS_SECONDS = 3  # how long a process counts as listening after it said so
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


def new_name(shared: str) -> str:
    """Return the name of this process's own queue, besides the shared one."""
    return f"{shared}.{uuid4().hex}"


def send(broker: "redis.Redis", run: UUID, message: str, shared: str) -> None:
    """Send a message to the process that keeps the run, if it listens, else to the shared queue."""
    broker.eval(_SEND, 2, _key(run), shared, message)


def keep(broker: "redis.Redis", run: UUID, queue_name: str) -> None:
    """Record that the process with this queue keeps the run."""
    broker.set(_key(run), queue_name, ex=KEEPS_SECONDS)


def listen(broker: "redis.Redis", queue_name: str) -> None:
    """Record that a process reads this queue for the next three seconds."""
    broker.set(f"{_LISTENS}{queue_name}", 1, ex=LISTENS_SECONDS)


def leave(broker: "redis.Redis", queue_name: str, shared: str) -> None:
    """Record that no process reads this queue any longer, and give its hints to all workers."""
    broker.eval(_LEAVE, 3, f"{_LISTENS}{queue_name}", queue_name, shared)


def _key(run: UUID) -> str:
    return f"signoff:kept:{run}"
