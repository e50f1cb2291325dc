"""Signs rows, verifies them, and keeps numbered, signed acts about one subject: appended, verified and folded.

Only web and command line hold the private keys. So a token, a group or a comment that another program inserts into
Postgres counts for nothing. Ed25519 is RFC 8032.

The number and the subject are signed with the act. So an act that was changed, renumbered, or copied from another
subject does not verify, and a deleted one leaves a gap. Deleting the newest acts is not noticed, so neither web nor
workers have the right to delete one.

Rows of approvals are read without the ORM, because each decision needs them and the ORM costs more than Postgres.
Columns are named one by one. A later release may add others while this one runs, and a prepared statement whose
result gets another column fails.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import count
from typing import Any, Generic, TypeVar

import pydantic_core
from django.core.exceptions import ValidationError
from django.db import DEFAULT_DB_ALIAS, connection, models, transaction

from approvals import clock
from approvals.errors import LogBroken
from approvals.models import Approval
from approvals.models.signed import SignedAct, SignedRow
from runtime.errors import KeyMissing
from runtime.keyring import signatures
from runtime.keyring.signatures import encode_row
from runtime.store import pool

Row = TypeVar("Row", bound=SignedAct)
State = TypeVar("State")

# An advisory lock: to lock the table needs the right to change its rows, which no process has.
_LOCK = "SELECT pg_advisory_xact_lock{}(hashtextextended(%(table)s, 0))"
_JSON = ("path", "origin", "excluded", "voted", "voted_for", "open_to", "readers")


def to_utc(moment: datetime) -> datetime:
    """Convert a `clock_timestamp()`, which Postgres returns in the zone of its session, to UTC."""
    return moment.astimezone(UTC)


def list_columns(model: type[models.Model]) -> tuple[str, ...]:
    """Name every column of a model's table, in one order."""
    return tuple(field.attname for field in model._meta.concrete_fields)  # noqa: SLF001 - its documented API


_NAMES = list_columns(Approval)
# The ORM asks each field of each new row, a tenth of the time of a gate that opens.
_DEFAULTS = {
    field.attname: field.default if field.has_default() else None
    for field in Approval._meta.concrete_fields  # noqa: SLF001
}
# The columns of `approvals_approval r`.
APPROVAL_COLUMNS = ", ".join(f"r.{name}::text" if name in _JSON else f"r.{name}" for name in _NAMES)


def add(row: SignedRow) -> None:
    """Sign the row and insert it. Raise ImproperlyConfigured without the private key."""
    sign(row)
    row.save(force_insert=True)


def sign(row: SignedRow) -> None:
    """Put the signature into the row. Raise ImproperlyConfigured without the private key."""
    signature = signatures.sign(row.PURPOSE, build_signed_text(row))
    row.signature, row.key_id = signature.hex, signature.key_id


def is_valid(row: SignedRow, text: str | None = None) -> bool:
    """Tell whether a key of the ring signed exactly this row. `text` is its signed text, if the caller has it."""
    try:
        return verify(row, build_signed_text(row) if text is None else text)
    except (KeyMissing, ValueError, TypeError, AttributeError):  # a value of another type
        return False


def verify(row: SignedRow, text: str, verifies: signatures.Verifies | None = None) -> bool:
    """Tell whether the key of the row signed this text of it. Raise KeyMissing for an unknown key."""
    verifies = verifies or signatures.verify_signature
    return verifies(row.PURPOSE, signatures.Signature(hex=row.signature, key_id=row.key_id), text)


def build_signed_text(row: SignedRow) -> str:
    """Return the signed text of a row. Raise ValueError, TypeError or AttributeError for values of other types."""
    names = row.SIGNED_FIELDS
    if row.LATER_FIELDS:
        names += tuple(name for name in row.LATER_FIELDS if getattr(row, name) is not None)
    return encode_row(row.KIND, {name: getattr(row, name) for name in names})


class SignedActs(Generic[Row]):
    """Signed acts of which only the newest about a subject counts. The columns `subject` name the subject."""

    def __init__(self, model: type[Row], *subject: str) -> None:
        self._model = model
        self._subject = subject

    def append(self, act: str, *, by: str | None, **values: Any) -> Row:
        """Sign and add an act, by default as the next one, of now. None is the command line.

        The caller makes appends take turns, or else one of two gets IntegrityError.
        """
        if "seq" not in values:
            last = self.read_newest(**{name: values[name] for name in self._subject})
            values["seq"] = 1 if last is None else last.seq + 1
        if "at" not in values:
            values["at"] = clock.read_time()
        row = self._model(act=act, by=by, **values)
        add(row)
        return row

    def read_newest(self, **subject: Any) -> Row | None:
        """Return the newest act about a subject, which the caller verifies; None if there is none."""
        return self._model._default_manager.filter(**subject).order_by("-seq").first()  # noqa: SLF001


class SignedLog(SignedActs[Row], Generic[Row, State]):
    """Signed acts that `apply` folds into a state, which `start` makes for a subject. `noun` names it, for errors.

    A missing, changed or reordered act raises `broken`, and so does `apply` for one that does not follow.
    """

    def __init__(
        self,
        model: type[Row],
        *subject: str,
        noun: str,
        start: Callable[..., State],
        apply: Callable[[State, Row], State],
        broken: type[LogBroken] = LogBroken,
    ) -> None:
        super().__init__(model, *subject)
        self._noun = noun
        self._start = start
        self._apply = apply
        self._broken = broken
        self._table = model._meta.db_table  # noqa: SLF001 - its documented API
        self._names = list_columns(model)
        condition = " AND ".join(f"{name} = %({name})s" for name in subject) or "true"
        self._read = (
            f"SELECT {', '.join(self._names)} FROM {self._table} WHERE {condition} ORDER BY seq"
        )
        self._count = f"SELECT count(*), clock_timestamp() FROM {self._table} WHERE {condition}"
        self._recent: dict[tuple[Any, ...], tuple[Row, ...]] = {}

    def read(self, **subject: Any) -> State:
        """Return what the acts about this subject made."""
        return self.fold(self.rows(**subject), self._start(**subject))

    def rows(self, **subject: Any) -> tuple[Row, ...]:
        """Read and verify every act about this subject."""
        # With the engine's connections, because a worker has few of Django's.
        with pool.join_transaction() as engine:
            return self.require_verified(
                self.make_rows(engine.execute(self._read, subject).fetchall())
            )

    def read_recent_rows(self, **subject: Any) -> tuple[tuple[Row, ...], datetime]:
        """Do what `rows` does, and return the time of the database.

        Acts are only added, so they are read again only if their number changed.
        """
        with pool.join_transaction() as engine:
            counted = pool.fetch_row(engine, self._count, subject)
        assert counted is not None  # a SELECT of a count has one row
        key = tuple(subject.values())
        rows = self._recent.get(key, ())
        if len(rows) != counted[0]:
            rows = self._recent[key] = self.rows(**subject)
        return rows, to_utc(counted[1])

    def forget(self) -> None:
        """Read all acts again at the next use."""
        self._recent.clear()

    def make_rows(self, values: Iterable[Sequence[Any]]) -> Iterator[Row]:
        """Make acts of the values of all columns."""
        for row in values:
            # Postgres returns times in the zone of its session, which Django sets but the engine does not.
            utc = [value.astimezone(UTC) if isinstance(value, datetime) else value for value in row]
            yield self._model.from_db(DEFAULT_DB_ALIAS, self._names, utc)

    def require_verified(self, rows: Iterable[Row], numbers: Iterable[int] = ()) -> tuple[Row, ...]:
        """Return these acts about one subject if each was signed and has its number, by default from 1 on."""
        expected = iter(numbers or count(1))
        verified = []
        for row in rows:
            number = next(expected, None)
            if row.seq != number:
                raise self._broken(f"act {number or row.seq} on {self._name(row)} is missing")
            if not is_valid(row):
                raise self._broken(
                    f"act {number} on {self._name(row)} is not the one that was signed"
                )
            verified.append(row)
        return tuple(verified)

    def fold(self, rows: Iterable[Row], state: State) -> State:
        """Return what these verified acts made of a state."""
        for row in rows:
            state = self._apply(state, row)
        return state

    @contextmanager
    def hold_lock(self) -> Iterator[None]:
        """Run the block in a transaction in which no other process appends an act."""
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute(_LOCK.format(""), {"table": self._table})
            yield

    def wait_for_appends(self) -> None:
        """Wait until acts that have their time already are visible to other connections."""
        with pool.join_transaction() as engine:
            pool.fetch_row(engine, _LOCK.format("_shared"), {"table": self._table})

    def _name(self, row: Row) -> str:
        return self._noun.format(row)


def make_approval(**values: Any) -> Approval:
    """Make a request of the values of some columns; the others are empty, or have their plain default."""
    return Approval.from_db(
        DEFAULT_DB_ALIAS, _NAMES, [values.get(name, _DEFAULTS[name]) for name in _NAMES]
    )


def read_approval(values: Sequence[Any]) -> Approval:
    """Make a request of the values of APPROVAL_COLUMNS."""
    values = [
        pydantic_core.from_json(value) if name in _JSON and value is not None else value
        for name, value in zip(_NAMES, values, strict=True)
    ]
    return Approval.from_db(DEFAULT_DB_ALIAS, _NAMES, values)


def decode_approval(row: Mapping[str, Any]) -> Approval:
    """Make a request of the JSON object of its row. Raises ValueError if a value is of another type."""
    fields = Approval._meta.concrete_fields  # noqa: SLF001
    try:
        # A column of a later release is None.
        values = [field.to_python(row.get(field.column or "")) for field in fields]
    except ValidationError as exc:
        raise ValueError(exc.messages[0]) from exc
    return Approval.from_db(DEFAULT_DB_ALIAS, _NAMES, values)


def select_texts(value: object) -> list[str]:
    """Return the texts of a stored list, and skip other values: the column may have been tampered with."""
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []
