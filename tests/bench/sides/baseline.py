"""The reference of the `engine` measure: Celery and Postgres, written by hand, and nothing more.

It runs the same scripts and tools as ours, as one Celery worker of two pool processes. A reply of the model and the
result of a tool are one transaction each: SELECT … FOR UPDATE, an INSERT of the message, an UPDATE of the run. So a
reply is on disk before its tool runs. A run of ours also has a lease, MACs, a frozen request with its digest, a signed
decision, permissions, an audit trail, retries and budgets.

`celery -A tests.bench.sides.baseline worker` runs it; the functions at the end stand for a web process.
"""

import json
import os
import threading
from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

import celery
import psycopg

from tests.bench.sides.workload import GATED, SCRIPTS, TOOLS, Call

TABLES = """
    CREATE TABLE IF NOT EXISTS baseline_run (
        id uuid PRIMARY KEY, script text NOT NULL, status text NOT NULL, seq integer NOT NULL, output text,
        parent uuid, root uuid NOT NULL);
    CREATE TABLE IF NOT EXISTS baseline_message (
        run_id uuid NOT NULL, seq integer NOT NULL, body text NOT NULL, PRIMARY KEY (run_id, seq));
    CREATE TABLE IF NOT EXISTS baseline_approval (
        run_id uuid PRIMARY KEY, tool text NOT NULL, args text NOT NULL, status text NOT NULL, decided_by text);
"""

app = celery.Celery("baseline", fixups=())  # nothing of Django around its tasks
app.conf.update(
    broker_url=os.environ.get("REDIS_URL", "").replace("unix://", "redis+socket://"),
    task_serializer="json",
    accept_content=["json"],
    task_ignore_result=True,
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_default_queue="baseline",
    worker_prefetch_multiplier=1,
    worker_enable_remote_control=False,
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
)
_own = threading.local()
Message = dict[str, Any]


@app.task(name="baseline.advance")
def advance(run: str) -> None:
    """Go on with a run from its messages until it is done, or until a person or another run must answer."""
    script, parent, messages = _load(run)
    last = messages[-1]
    if "tool" in last:  # approved
        _keep(run, messages, _performed(last), "running")
    given = messages[0]["content"]
    while True:
        results = len(messages) // 2
        reply = SCRIPTS[script](given, results, lambda n: messages[2 * n + 2]["content"])
        if isinstance(reply, str):
            _end(run, parent, messages, reply)
            return
        said = {"role": "assistant", "tool": reply.tool, "args": reply.args}
        if reply.tool in SCRIPTS:
            _hand_over(run, messages, said, reply)
            return
        if reply.tool in GATED:
            _keep(run, messages, said, "suspended", waits=reply)
            return
        _keep(run, messages, said, "running")
        _keep(run, messages, _performed(said), "running")


def _performed(call: Message) -> Message:
    return {"role": "tool", "content": TOOLS[call["tool"]](**call["args"])}


def _load(run: str) -> tuple[str, UUID | None, list[Message]]:
    row = connection().execute("SELECT script, parent FROM baseline_run WHERE id = %s", (run,))
    ((script, parent),) = row.fetchall()
    rows = connection().execute(
        "SELECT body FROM baseline_message WHERE run_id = %s ORDER BY seq", (run,)
    )
    return script, parent, [json.loads(body) for (body,) in rows.fetchall()]


def _keep(
    run: str,
    messages: list[Message],
    message: Message,
    status: str,
    *,
    output: str | None = None,
    waits: Call | None = None,
) -> None:
    """Commit a message and its change of the run. Raise AssertionError if another process has advanced the run."""
    with connection().transaction():
        _write(run, len(messages), message, status, output)
        if waits is not None:
            connection().execute(
                "INSERT INTO baseline_approval VALUES (%s, %s, %s, 'pending')",
                (run, waits.tool, json.dumps(waits.args)),
            )
    messages.append(message)


def _write(run: Any, seq: int, message: Message, status: str, output: str | None = None) -> None:
    locked = connection().execute("SELECT seq FROM baseline_run WHERE id = %s FOR UPDATE", (run,))
    ((found,),) = locked.fetchall()
    assert found == seq, f"run {run} is at message {found}, not {seq}"
    connection().execute(
        "INSERT INTO baseline_message VALUES (%s, %s, %s)", (run, seq + 1, json.dumps(message))
    )
    connection().execute(
        "UPDATE baseline_run SET status = %s, seq = %s, output = %s WHERE id = %s",
        (status, seq + 1, output, run),
    )


def _end(run: str, parent: UUID | None, messages: list[Message], text: str) -> None:
    said = {"role": "assistant", "content": text}
    if parent is None:
        _keep(run, messages, said, "completed", output=text)
        return
    with connection().transaction():
        _write(run, len(messages), said, "completed", text)
        _write(parent, 2, {"role": "tool", "content": text}, "running")
    advance.delay(str(parent))


def _hand_over(run: str, messages: list[Message], said: Message, call: Call) -> None:
    """Start another run that this one waits for."""
    child = uuid4()
    with connection().transaction():
        _write(run, len(messages), said, "delegating")
        _insert(child, call.tool, call.args, parent=run, root=run)
    advance.delay(str(child))


def _insert(run: UUID, script: str, given: Any, *, parent: Any = None, root: Any) -> None:
    connection().execute(
        "INSERT INTO baseline_run VALUES (%s, %s, 'queued', 1, NULL, %s, %s)",
        (run, script, parent, root),
    )
    body = json.dumps({"role": "user", "content": given})
    connection().execute("INSERT INTO baseline_message VALUES (%s, 1, %s)", (run, body))


def connection() -> "psycopg.Connection[Any]":
    """Return this thread's connection, made on first use: a pool process is one thread."""
    if not hasattr(_own, "connection"):
        _own.connection = psycopg.connect(os.environ["DATABASE_URL"], autocommit=True)
    found: psycopg.Connection[Any] = _own.connection
    return found


# The part of a web process

name = "baseline"


def start(script: str, given: Any, /) -> UUID:
    run = uuid4()
    with connection().transaction():
        _insert(run, script, given, root=run)
    advance.delay(str(run))
    return run


def pending(runs: Sequence[UUID], /) -> dict[UUID, UUID]:
    """The run that waits for an approval, by the run that it belongs to."""
    rows = connection().execute(
        "SELECT root, run_id FROM baseline_approval JOIN baseline_run ON id = run_id"
        " WHERE baseline_approval.status = 'pending' AND root = ANY(%s)",
        (list(runs),),
    )
    return dict(rows.fetchall())


def approve(run: UUID, /) -> None:
    decided = connection().execute(
        "UPDATE baseline_approval SET status = 'approved', decided_by = 'bea'"
        " WHERE run_id = %s AND status = 'pending'",
        (run,),
    )
    assert decided.rowcount == 1, f"run {run} waits for no approval"
    advance.delay(str(run))


def output(run: UUID, /) -> str:
    rows = connection().execute("SELECT output FROM baseline_run WHERE id = %s", (run,))
    ((text,),) = rows.fetchall()
    return str(text)
