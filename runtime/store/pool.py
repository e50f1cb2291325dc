"""The engine's own way to Postgres: an autocommit pool beside Django's connections, made after fork.

Step commits go through this pool because a prepared statement on an open connection is what keeps
a step cheap. What must share a transaction with the ORM runs on Django's connection instead.
"""

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property
from typing import Any

import psycopg
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, InterfaceError, OperationalError, connections
from django.db import connection as django_connection
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow
from psycopg_pool import ConnectionPool

Connection = psycopg.Connection[TupleRow]

POOL_SIZE = 4
DJANGOS_OF_A_WORKER = (
    5  # which the threads of a worker share: its tools, the rules of its agents, and the engine
)
WAIT_SECONDS = 3.0
# After which the pool gives up, and tries at once for the next caller: until then it pauses twice as long each time.
RECONNECT_SECONDS = 1.0

_DJANGOS = OperationalError | InterfaceError
# Classes of SQLSTATE: connection, state of the transaction (read-only), prepared statement that is gone, login,
# no such database, rollback, resources, object in use, operator intervention, error of the system.
_PASSING = frozenset({"08", "25", "26", "28", "3D", "40", "53", "55", "57", "58"})

_lock = threading.Lock()
_pool: "_Pool | None" = None


@contextmanager
def pooled() -> Iterator[Connection]:
    """An autocommit connection of the pool. Raises psycopg.OperationalError when none can be had."""
    pool = _the_pool()
    connection = pool.take()
    try:
        yield connection
    finally:
        pool.give_back(connection)


def own(name: str = "") -> Connection:
    """A connection of the caller's own, for a thread that must never wait for the pool.

    `name` is what Postgres shows of it in pg_stat_activity.
    """
    named = {"application_name": name} if name else {}
    return psycopg.connect(autocommit=True, **{**_parameters(), **named})


def djangos() -> Connection:
    """The connection under Django's current transaction."""
    django_connection.ensure_connection()
    connection: Connection = django_connection.connection
    return connection


def now(connection: Connection) -> datetime:
    """Return the time by the clock of Postgres."""
    row = connection.execute("SELECT clock_timestamp()").fetchone()
    assert row is not None  # a SELECT without FROM has one row
    at: datetime = row[0]
    return at


def row(
    connection: Connection,
    statement: str,
    parameters: Mapping[str, object],
    *,
    prepare: bool | None = None,
) -> TupleRow | None:
    """Execute a statement and return its first row: one of the few that are executed all the time.

    A pooled connection keeps a cursor for each, which keeps the row until the next one: large rows are not for it.
    """
    cursor = connection.kept(statement) if isinstance(connection, _Pooled) else connection.cursor()
    return cursor.execute(statement, parameters, prepare=prepare).fetchone()


@contextmanager
def asking() -> Iterator[Connection]:
    """The connection of the transaction that the caller is in, else one of the pool."""
    if django_connection.in_atomic_block:
        yield djangos()
    else:
        with pooled() as connection:
            yield connection


def is_passing(exc: BaseException) -> bool:
    """Whether the error is due to the state of Postgres, so that the same statement may succeed later.

    The SQLSTATE decides, not the class of the error: a read-only Postgres raises no OperationalError. An error without
    a SQLSTATE is due to the connection.
    """
    found = exc if isinstance(exc, psycopg.Error) else exc.__cause__
    state = found.sqlstate if isinstance(found, psycopg.Error) else None
    if state is None:
        return isinstance(
            found or exc, psycopg.OperationalError | psycopg.InterfaceError | _DJANGOS
        )
    return state[:2] in _PASSING


def backend(connection: Connection) -> int:
    """The process id of what serves this connection's open transaction.

    Postgres is asked: behind a pooler, what the connection itself knows is a number of the pooler's.
    """
    row = connection.execute("SELECT pg_backend_pid()", prepare=False).fetchone()
    assert row is not None
    return int(row[0])


def terminate(backend: int) -> None:
    """End another connection of ours, which rolls back its transaction. Raise psycopg.Error."""
    with pooled() as connection:
        connection.execute("SELECT pg_terminate_backend(%s)", (backend,))


def has_ended(connection: Connection) -> bool:
    """Whether the other side has ended it, as far as we were told; without asking Postgres.

    What came lies unread: it is read here, the end after it too, by calls that keep the interpreter, unlike poll.
    """
    try:
        connection.pgconn.consume_input()
        connection.pgconn.consume_input()
    except psycopg.OperationalError:
        return True
    return False


def close() -> None:
    """Close the pool; before a fork, at the end of a process, and before a test database is dropped."""
    global _pool
    with _lock:
        if _pool is not None and _pool.process == os.getpid():
            _pool.close()
        _pool = None


class _Pooled(psycopg.Connection[TupleRow]):
    """A connection with cursors that have learnt how a statement's parameters are written and its columns read.

    A cursor forgets that with each other statement, so there is one for each of the few that are kept.
    """

    @cached_property
    def _cursors(self) -> dict[str, psycopg.Cursor[TupleRow]]:
        return {}

    def kept(self, statement: str) -> psycopg.Cursor[TupleRow]:
        cursor = self._cursors.get(statement)
        if cursor is None:
            cursor = self._cursors[statement] = self.cursor()
        return cursor


class _Pool:
    """The connections of one process. The one that was given back last is taken first: its backend is still warm.

    psycopg's pool opens, bounds and replaces them, but takes each in turn.
    """

    def __init__(self) -> None:
        self.process = os.getpid()
        self._lock = threading.Lock()
        self._idle: list[_Pooled] = []
        self._waiting = (
            0  # callers who get one of `_all`, where connections are given back meanwhile
        )
        self._all = ConnectionPool(
            connection_class=_Pooled,
            kwargs={"autocommit": True, **_parameters()},
            min_size=1,
            max_size=POOL_SIZE,
            timeout=WAIT_SECONDS,
            reconnect_timeout=RECONNECT_SECONDS,
            check=self._check,
            open=True,
            name="engine",
        )

    def take(self) -> _Pooled:
        """Raises psycopg.OperationalError when none can be had."""
        while (connection := self._last()) is not None:
            if not has_ended(connection):
                return connection
            self._all.putconn(connection)
        try:
            return self._all.getconn()
        finally:
            with self._lock:
                self._waiting -= 1

    def give_back(self, connection: _Pooled) -> None:
        with self._lock:
            if not (self._waiting or self._all.closed) and _is_idle(connection):
                self._idle.append(connection)
                return
        self._all.putconn(connection)

    def close(self) -> None:
        self._all.close()
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            self._all.putconn(connection)

    def _last(self) -> _Pooled | None:
        """The connection that was given back last; None if there is none, and the caller counts as waiting."""
        with self._lock:
            if self._idle:
                return self._idle.pop()
            self._waiting += 1
            return None

    def _check(self, connection: Connection) -> None:
        """Raise if the connection is dead, with every other dead one of psycopg's pool thrown away.

        What kills one kills all, and that pool pauses twice as long before each next one it finds. An end that the
        other side told us of lies unread in the socket, so a silent one is taken as it is, without asking Postgres.
        """
        if not has_ended(connection):
            return
        try:
            ConnectionPool.check_connection(connection)
        except Exception:
            self._all.check()
            raise


def _the_pool() -> _Pool:
    global _pool
    with _lock:
        if _pool is None or _pool.process != os.getpid():
            _pool = _Pool()
        return _pool


def _is_idle(connection: Connection) -> bool:
    """Whether it works and no transaction is open."""
    return connection.pgconn.transaction_status == TransactionStatus.IDLE


def _parameters() -> dict[str, Any]:
    """Django's connection parameters, less what only Django's cursors need."""
    parameters = dict(connections[DEFAULT_DB_ALIAS].get_connection_params())
    for only_djangos in ("context", "cursor_factory", "prepare_threshold"):
        parameters.pop(only_djangos, None)
    if not settings.ABEYANCE_PREPARED_STATEMENTS:
        parameters["prepare_threshold"] = None  # not even where a statement asks for it
    return parameters
