"""Opens the engine's connections to Postgres: an autocommit pool, created after fork, apart from Django's.

Steps are committed through this pool: prepared statements on open connections keep a step cheap. Statements that share
a transaction with the ORM use Django's connection.
"""

import logging
import os
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields
from datetime import datetime
from functools import cache, cached_property
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import psycopg
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, InterfaceError, OperationalError, connections
from django.db import connection as django_connection
from psycopg import abc, errors
from psycopg.adapt import PyFormat, Transformer
from psycopg.pq import DiagnosticField, ExecStatus, TransactionStatus
from psycopg.pq.abc import PGresult
from psycopg.rows import TupleRow
from psycopg_pool import ConnectionPool

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

log = logging.getLogger(__name__)

Connection = psycopg.Connection[TupleRow]
T = TypeVar("T", bound="DataclassInstance")

POOL_SIZE = 4
DJANGOS_OF_A_WORKER = 5  # for its tools, the rules of its agents, and the engine
WAIT_SECONDS = 3.0
# The pool retries for this long, with doubling pauses. Then it gives up, and retries at once for the next caller.
RECONNECT_SECONDS = 1.0

MAX_PREPARED = 100  # of the frequent statements, on each connection
_PLACEHOLDER = re.compile(r"%(?:\((\w+)\)s|%)")
_numbers = count()

# Postgres cannot be reached. The engine runs statements without Django, so psycopg's own errors arrive too.
UNREACHABLE = (OperationalError, InterfaceError, psycopg.OperationalError, psycopg.InterfaceError)
# Classes of SQLSTATE: connection, state of the transaction (read-only), lost prepared statement, login,
# no such database, rollback, resources, object in use, operator intervention, error of the system.
_PASSING = frozenset({"08", "25", "26", "28", "3D", "40", "53", "55", "57", "58"})

_lock = threading.Lock()
_pool: "_Pool | None" = None


def open_own(name: str = "") -> Connection:
    """Open a connection for a thread that must never wait for the pool.

    Postgres shows `name` in pg_stat_activity.
    """
    options = {"application_name": name} if name else {}
    return psycopg.connect(autocommit=True, **{**_read_parameters(), **options})


def use_django_connection() -> Connection:
    """Return Django's connection, with its current transaction."""
    django_connection.ensure_connection()
    connection: Connection = django_connection.connection
    return connection


def read_clock(connection: Connection) -> datetime:
    """Return the time by the clock of Postgres."""
    row = connection.execute("SELECT clock_timestamp()").fetchone()
    assert row is not None  # a SELECT without FROM has one row
    at: datetime = row[0]
    return at


def insert(
    connection: Connection,
    table: str,
    columns: Mapping[str, object],
    on_conflict: str = "DO NOTHING",
) -> bool:
    """Insert a row with these columns. Return False if one is in its way."""
    names, values = ", ".join(columns), ", ".join(f"%({name})s" for name in columns)
    statement = f"INSERT INTO {table} ({names}) VALUES ({values}) ON CONFLICT {on_conflict}"
    return connection.execute(statement, columns).rowcount == 1


def array(values: Iterable[UUID | int]) -> str:
    """Return values as the text of an array in Postgres: psycopg would take eight functions for a list."""
    return "{" + ",".join(map(str, values)) + "}"


def decode_row(kind: type[T], values: Sequence[Any]) -> T:
    """Return the values of a row in this dataclass, whose fields have the order of the columns."""
    names = (field.name for field in fields(kind))
    return kind(**dict(zip(names, values, strict=True)))


def fetch_row(
    connection: Connection,
    statement: str,
    parameters: Mapping[str, object],
    *,
    binary: bool = False,
) -> TupleRow | None:
    """Execute a frequent statement, which returns rows, and return its first row, if any.

    A pooled connection prepares it at once. With `binary` Postgres sends binary values.
    """
    if isinstance(connection, _Pooled) and connection.prepares:
        try:
            return connection.execute_for_row(statement, parameters, binary=binary)
        except (errors.FeatureNotSupported, errors.InvalidSqlStatementName) as exc:
            # After a change of a column's type each use of a prepared statement that returns it fails, on each
            # connection, until the connection is closed. The statement was not executed.
            if connection.pgconn.transaction_status != TransactionStatus.IDLE:
                raise
            log.warning("A connection to Postgres is closed, its statements are outdated: %s", exc)
            connection.is_outdated = True
    return connection.execute(statement, parameters, binary=binary).fetchone()


def join_transaction() -> AbstractContextManager[Connection]:
    """Yield the connection of the caller's transaction, or one of the pool outside a transaction."""
    return nullcontext(use_django_connection()) if django_connection.in_atomic_block else Checkout()


def is_passing(exc: BaseException) -> bool:
    """Return whether the error is transient: it is due to the state of Postgres, so a retry may succeed.

    The SQLSTATE decides, not the class of the error: a read-only Postgres raises no OperationalError. An error without
    a SQLSTATE is due to the connection.
    """
    error = exc if isinstance(exc, psycopg.Error) else exc.__cause__
    state = error.sqlstate if isinstance(error, psycopg.Error) else None
    if state is None:
        return isinstance(error or exc, UNREACHABLE)
    return state[:2] in _PASSING


def read_backend_id(connection: Connection) -> int:
    """Return the process id of the Postgres backend of this connection's open transaction.

    Postgres returns it: behind a pooler, the connection itself knows only a number of the pooler.
    """
    row = connection.execute("SELECT pg_backend_pid()", prepare=False).fetchone()
    assert row is not None
    return int(row[0])


def terminate(backend: int) -> None:
    """End another connection of this product, which rolls back its transaction. Raise psycopg.Error."""
    with pooled() as connection:
        connection.execute("SELECT pg_terminate_backend(%s)", (backend,))


def has_ended(connection: Connection) -> bool:
    """Return whether Postgres has closed the connection, from data that has already arrived.

    Reads the pending data twice, so that a close after other data is seen. Unlike poll, these calls keep the GIL.
    """
    try:
        connection.pgconn.consume_input()
        connection.pgconn.consume_input()
    except psycopg.OperationalError:
        return True
    return False


def close() -> None:
    """Close the pool: before a fork, at the end of a process, and before a test database is dropped."""
    global _pool
    with _lock:
        if _pool is not None and _pool.process == os.getpid():
            _pool.close()
        _pool = None


class _Pooled(psycopg.Connection[TupleRow]):
    """A connection that prepares frequent statements, and is closed after its use once one of them is outdated.

    It calls libpq itself, which takes a quarter of the functions of a cursor, and less than half its time.
    """

    prepares = is_outdated = False

    @cached_property
    def _transformer(self) -> abc.Transformer:
        return Transformer(self)

    @cached_property
    def _names(self) -> dict[tuple[str, tuple[int, ...]], bytes]:
        """The names of prepared statements, by statement and types of its parameters, in the order of their making."""
        return {}

    def execute_for_row(
        self, statement: str, parameters: Mapping[str, object], *, binary: bool
    ) -> TupleRow | None:
        """Execute a statement that returns rows, in its prepared form, and return the first. Raises psycopg.Error."""
        query, names, formats = _number_parameters(statement)
        transformer = self._transformer
        values: list[object] = []
        for parameter in names:
            value = parameters[parameter]
            # As psycopg writes a UUID, it would take two functions.
            values.append(f"{value.int:032x}" if isinstance(value, UUID) else value)
        dumped = transformer.dump_sequence(values, formats)
        key = statement, transformer.types or ()
        name = self._names.get(key) or self._prepare(query, key)
        result = self.pgconn.exec_prepared(name, dumped, transformer.formats, binary)  # type: ignore[arg-type]  # its type omits NULL
        if result.status != ExecStatus.TUPLES_OK:
            raise _read_error(result)
        transformer.set_pgresult(result)
        row = transformer.load_row(0, tuple) if result.ntuples else None
        transformer.set_pgresult(None)
        return row

    def _prepare(self, query: bytes, key: tuple[str, tuple[int, ...]]) -> bytes:
        """Prepare a statement for these types, in place of the oldest one if there are too many."""
        if len(self._names) >= MAX_PREPARED:
            oldest = self._names.pop(next(iter(self._names)))
            self.pgconn.exec_(b"DEALLOCATE " + oldest)
        name = b"row_%d" % next(_numbers)
        result = self.pgconn.prepare(name, query, key[1])
        if result.status != ExecStatus.COMMAND_OK:
            raise _read_error(result)
        self._names[key] = name
        return name


@cache
def _number_parameters(statement: str) -> tuple[bytes, list[str], list[PyFormat]]:
    """Return the statement with numbers for the names of its parameters, the names in that order, and their formats."""
    names = list(dict.fromkeys(filter(None, _PLACEHOLDER.findall(statement))))
    numbers = {name: f"${number}" for number, name in enumerate(names, 1)}
    query = _PLACEHOLDER.sub(lambda match: numbers.get(match[1], "%"), statement)
    return query.encode(), names, [PyFormat.AUTO] * len(names)


def _read_error(result: PGresult) -> psycopg.Error:
    """Return the error of a failed statement: one without SQLSTATE is of the connection."""
    if result.error_field(DiagnosticField.SQLSTATE):
        return errors.error_from_result(result)
    return psycopg.OperationalError(result.get_error_message())


class Checkout:
    """An autocommit connection of the pool for a block. Raises psycopg.OperationalError if none is available."""

    def __enter__(self) -> Connection:
        global _pool
        with _lock:
            if _pool is None or _pool.process != os.getpid():
                _pool = _Pool()
            self._pool = pool = _pool
        with pool.lock:
            connection = pool.idle.pop() if pool.idle else None
            pool.waiting += connection is None
        if connection is None or has_ended(connection):
            connection = pool.replace(connection)
        self._connection = connection
        return connection

    def __exit__(self, *_: object) -> None:
        pool, connection = self._pool, self._connection
        if connection.is_outdated:
            connection.close()
        with pool.lock:
            is_idle = connection.pgconn.transaction_status == TransactionStatus.IDLE
            if is_idle and not pool.waiting:
                pool.idle.append(connection)
                return
        pool.all.putconn(connection)


pooled = Checkout  # `with pool.pooled() as connection`


class _Pool:
    """The connections of one process, last in, first out: the backend that was used last has warm caches.

    psycopg's pool opens, bounds and replaces the connections, but would hand them out in turn.
    """

    def __init__(self) -> None:
        self.process = os.getpid()
        self.lock = threading.Lock()
        self.idle: list[_Pooled] = []
        # Callers that wait for `all`; while there are any, connections return to `all`.
        self.waiting = 0
        _Pooled.prepares = settings.SIGNOFF_PREPARED_STATEMENTS
        # Each statement finds its rows by keys: one plan will do. Postgres would make ten for each connection first,
        # in 2 ms each if the statement reads rights.
        options = f"{_read_parameters().get('options', '')} -c plan_cache_mode=force_generic_plan"
        self.all = ConnectionPool(
            connection_class=_Pooled,
            kwargs={"autocommit": True, **_read_parameters(), "options": options},
            min_size=1,
            max_size=POOL_SIZE,
            timeout=WAIT_SECONDS,
            reconnect_timeout=RECONNECT_SECONDS,
            check=self._check,
            open=True,
            name="engine",
        )

    def replace(self, connection: _Pooled | None) -> _Pooled:
        """Return another connection than one that has ended. A caller without one already counts as waiting."""
        while connection is not None:
            self.all.putconn(connection)
            with self.lock:
                connection = self.idle.pop() if self.idle else None
                self.waiting += connection is None
            if connection is not None and not has_ended(connection):
                return connection
        try:
            return self.all.getconn()
        finally:
            with self.lock:
                self.waiting -= 1

    def close(self) -> None:
        with self.lock:
            self.waiting += 1  # for good: connections that are still in use return to `all`
            idle, self.idle = self.idle, []
        self.all.close()
        for connection in idle:
            self.all.putconn(connection)

    def _check(self, connection: Connection) -> None:
        """If the connection is dead, remove every dead connection from psycopg's pool, and raise.

        One cause usually kills all connections, and psycopg's pool doubles its pause for each dead one it finds. If no
        close has arrived on the socket, the connection counts as alive, without a query.
        """
        if not has_ended(connection):
            return
        try:
            ConnectionPool.check_connection(connection)
        except Exception:
            self.all.check()
            raise


def _read_parameters() -> dict[str, Any]:
    """Return Django's connection parameters without those for Django's cursors: psycopg's prepare nothing."""
    parameters = dict(connections[DEFAULT_DB_ALIAS].get_connection_params())
    for only_djangos in ("context", "cursor_factory"):
        parameters.pop(only_djangos, None)
    return parameters | {"prepare_threshold": None}
