"""The loop to compare with: the same onboarding, written by hand on Celery and Postgres, and nothing more.

What it does that a run of ours does: the same script, the same tools against
the same directory and mailbox, one transaction of an INSERT and an UPDATE after each reply and each result,
a row for the approval, and a wake-up through the broker when it is decided. What it does not: no lease, no
MAC, no frozen terms, no audit, no signed decision, no policy. A worker that dies loses what it was doing.

`celery -A tests.bench.bare worker` runs it; the functions at the end are what a web process would do.
"""

import json
import os
from functools import cache
from typing import Any
from uuid import UUID, uuid4

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
django.setup()

import celery  # noqa: E402
import redis  # noqa: E402
from django.conf import settings  # noqa: E402
from psycopg_pool import ConnectionPool  # noqa: E402
from pydantic_ai.messages import (  # noqa: E402
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    ToolCallPart,
    ToolReturnPart,
)

from agents.flows.hr.onboarding import hr_onboarding_single  # noqa: E402
from agents.gateway.playing import play  # noqa: E402
from agents.sdk import ToolContext  # noqa: E402
from config import celery as configured  # noqa: E402

TABLES = """
    CREATE TABLE IF NOT EXISTS bare_run (
        id uuid PRIMARY KEY, status text NOT NULL, seq bigint NOT NULL, output text);
    CREATE TABLE IF NOT EXISTS bare_message (
        run_id uuid NOT NULL, seq bigint NOT NULL, body text NOT NULL, PRIMARY KEY (run_id, seq));
    CREATE TABLE IF NOT EXISTS bare_approval (
        run_id uuid PRIMARY KEY, call text NOT NULL, decided_by text);
"""
QUEUE = "bare"

app = celery.Celery("bare")
app.conf.update(dict(configured.app.conf.changes))
app.conf.update(task_default_queue=QUEUE, task_queues={QUEUE: {}})


@app.task(name="bare.onboard")
def onboard(run: str) -> None:
    """Go on with a run from its messages until it is done, or until somebody must approve."""
    messages = _messages(run)
    if isinstance(messages[-1], ModelResponse):
        messages.append(_results(run, messages[-1], len(messages)))
        _keep(run, messages, "running")
    while True:
        reply = play(hr_onboarding_single, messages)
        messages.append(reply)
        if not reply.tool_calls:
            _keep(run, messages, "completed", output=reply.text or "")
            return
        waits = [call for call in reply.tool_calls if _tools()[call.tool_name].approval]
        if waits:
            _keep(run, messages, "suspended", waits=waits[0])
            return
        _keep(run, messages, "running")
        messages.append(_results(run, reply, len(messages)))
        _keep(run, messages, "running")


@app.task(name="bare.nothing")
def nothing(answer: str) -> None:
    """Say that it ran: a list that whoever asked waits at."""
    _redis().lpush(answer, "ran")


def _results(run: str, reply: ModelResponse, seq: int) -> ModelRequest:
    parts = [_result(run, call, seq) for call in reply.tool_calls]
    return ModelRequest(parts=parts)


def _result(run: str, call: ToolCallPart, seq: int) -> ToolReturnPart:
    tool = _tools()[call.tool_name]
    context = ToolContext(
        run=UUID(run), frame="0", call=f"c{seq}", attempt=1, key=f"{run}/{seq}", deadline=30.0
    )
    value = tool(context, **call.args_as_dict())
    return ToolReturnPart(tool_name=call.tool_name, content=value, tool_call_id=call.tool_call_id)


def _messages(run: str) -> list[ModelMessage]:
    with pool().connection() as connection:
        rows = connection.execute(
            "SELECT body FROM bare_message WHERE run_id = %s ORDER BY seq", (run,)
        ).fetchall()
    return ModelMessagesTypeAdapter.validate_json("[" + ",".join(body for (body,) in rows) + "]")


def _keep(
    run: str,
    messages: list[ModelMessage],
    status: str,
    *,
    output: str | None = None,
    waits: ToolCallPart | None = None,
) -> None:
    """The last message and what it means to the run, in one transaction."""
    seq, body = len(messages), _body(messages[-1])
    with pool().connection() as connection, connection.transaction():
        connection.execute("INSERT INTO bare_message VALUES (%s, %s, %s)", (run, seq, body))
        connection.execute(
            "UPDATE bare_run SET status = %s, seq = %s, output = %s WHERE id = %s",
            (status, seq, output, run),
        )
        if waits is not None:
            connection.execute(
                "INSERT INTO bare_approval VALUES (%s, %s)", (run, waits.args_as_json_str())
            )


def _body(message: ModelMessage) -> str:
    return ModelMessagesTypeAdapter.dump_json([message])[1:-1].decode()


# What a web process would do


def start(newcomer: dict[str, Any]) -> UUID:
    run = uuid4()
    body = _body(ModelRequest.user_text_prompt(json.dumps(newcomer)))
    with pool().connection() as connection, connection.transaction():
        connection.execute("INSERT INTO bare_run VALUES (%s, 'queued', 1)", (run,))
        connection.execute("INSERT INTO bare_message VALUES (%s, 1, %s)", (run, body))
    onboard.delay(str(run))
    return run


def approve(run: UUID, by: str) -> None:
    with pool().connection() as connection:
        connection.execute("UPDATE bare_approval SET decided_by = %s WHERE run_id = %s", (by, run))
    onboard.delay(str(run))


def make_tables() -> None:
    with pool().connection() as connection:
        connection.execute(TABLES)


@cache
def pool() -> "ConnectionPool[Any]":
    """Autocommit, so that only what belongs together pays for a transaction."""
    where = settings.DATABASES["default"]
    return ConnectionPool(
        kwargs={
            "autocommit": True,
            "host": where["HOST"],
            "user": where["USER"],
            "password": where["PASSWORD"],
            "dbname": where["NAME"],
        },
        min_size=1,
        max_size=8,
        open=True,
    )


@cache
def _tools() -> dict[str, Any]:
    return {tool.name: tool for tool in hr_onboarding_single.tools}


@cache
def _redis() -> "redis.Redis":
    return redis.Redis.from_url(settings.REDIS_URL)
