"""Reads the signed acts on a prompt, and adds one.

The acts on each prompt are numbered from 1 without gaps. A missing or changed act is an error, never another text.
Deleting the newest acts is not noticed, so neither web nor workers have the right to delete one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

from django.db import DEFAULT_DB_ALIAS

from approvals import clock, stored_rows
from approvals.errors import ApprovalError
from approvals.models import PromptAct
from approvals.permissions import signatures
from runtime.core.digest import sha256_of
from runtime.store import pool

Act = PromptAct.PromptChange

CODE = 0  # the number of the text in the code
PRODUCTION = "production"

# With the engine's connections, because a worker has few of Django's.
_NAMES: Final = stored_rows.names_of(PromptAct)
_READ: Final = f"""
    SELECT {", ".join(_NAMES)} FROM approvals_promptact
    WHERE %(name)s::text IS NULL OR name = %(name)s ORDER BY name, seq
"""


class PromptBroken(ApprovalError):
    """The stored acts on a prompt are not those that were signed."""

    status, code = 409, "prompt_broken"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPromptVersion:
    """One version, which never changes."""

    number: int
    text: str
    note: str
    author: str | None
    at: datetime

    @property
    def digest(self) -> str:
        """The digest of the text."""
        return sha256_of(self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedVersion:
    """A version that is proposed for production. `effective_at` is None until another admin confirms it."""

    number: int
    by: str | None
    at: datetime
    effective_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Activation:
    """A version that is in production from `at`. `confirmed_by` is None for the command line, or if no person did."""

    number: int
    at: datetime
    proposed_by: str | None
    confirmed_by: str | None = None
    alone: bool = False  # by the only admin


@dataclass(slots=True, kw_only=True)
class PromptHistory:
    """What the acts on one prompt made, up to a time. `proposals` wait; `activations` are in the order of the acts."""

    name: str
    acts: int = 0
    versions: dict[int, StoredPromptVersion] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    proposals: dict[int, ProposedVersion] = field(default_factory=dict)
    activations: list[Activation] = field(default_factory=list)

    @property
    def in_production(self) -> int:
        """The number of the version that was put in production last, CODE without one."""
        return self.activations[-1].number if self.activations else CODE


def history(rows: Sequence[PromptAct], name: str, at: datetime) -> PromptHistory:
    """Return the history of one prompt at a time, by its verified acts. Raise PromptBroken."""
    found = PromptHistory(name=name)
    for row in rows:
        if row.at <= at:
            _take_effect(found, row.at)
            _add(found, row)
    _take_effect(found, at)
    found.acts = len(rows)
    return found


def read(name: str | None = None) -> Mapping[str, tuple[PromptAct, ...]]:
    """Read and verify the acts on one prompt, or on all. Raise PromptBroken."""
    with pool.in_transaction() as connection:
        rows = connection.execute(_READ, {"name": name}).fetchall()
    found = [PromptAct.from_db(DEFAULT_DB_ALIAS, _NAMES, row) for row in rows]
    return {one: verified(tuple(acts)) for one, acts in groupby(found, attrgetter("name"))}


def verified(rows: tuple[PromptAct, ...]) -> tuple[PromptAct, ...]:
    """Return these acts on one prompt. Raise PromptBroken unless each was signed, and none is missing."""
    for count, row in enumerate(rows, 1):
        if row.seq != count:
            raise PromptBroken(f"act {count} on the prompt {row.name} is missing")
        if not signatures.is_valid(row):
            raise PromptBroken(
                f"act {count} on the prompt {row.name} is not the one that was signed"
            )
    return rows


def append(history: PromptHistory, act: Act, number: int, **more: Any) -> PromptAct:
    """Sign and add an act. The caller holds the lock for changes of prompts."""
    history.acts += 1
    row = PromptAct(
        name=history.name,
        seq=history.acts,
        act=act,
        number=number,
        **{"text": "", "note": "", "label": "", "at": clock.now(), **more},
    )
    signatures.sign(row)
    row.save(force_insert=True)
    return row


def _take_effect(found: PromptHistory, at: datetime) -> None:
    """Put in production what the only admin scheduled for a time that has come."""
    due = [one for one in found.proposals.values() if one.effective_at and one.effective_at <= at]
    for one in sorted(due, key=attrgetter("effective_at")):
        del found.proposals[one.number]
        assert one.effective_at is not None  # it is due
        found.activations.append(
            Activation(number=one.number, at=one.effective_at, proposed_by=one.by, alone=True)
        )


def _add(found: PromptHistory, row: PromptAct) -> None:
    """Take one act into the history. Raise PromptBroken if it does not follow from those before."""
    match row.act:
        case Act.SAVED if row.number == len(found.versions) + 1:
            found.versions[row.number] = StoredPromptVersion(
                number=row.number, text=row.text, note=row.note, author=row.by, at=row.at
            )
        case Act.LABELLED if row.number in found.versions:
            found.labels[row.label] = row.number
        case Act.PROPOSED if row.number in {CODE, *found.versions}:
            found.proposals[row.number] = ProposedVersion(number=row.number, by=row.by, at=row.at)
        case Act.SCHEDULED if (one := found.proposals.get(row.number)) is not None:
            found.proposals[row.number] = ProposedVersion(
                number=one.number, by=one.by, at=one.at, effective_at=row.effective_at
            )
        case Act.CONFIRMED if (one := found.proposals.pop(row.number, None)) is not None:
            found.activations.append(
                Activation(number=one.number, at=row.at, proposed_by=one.by, confirmed_by=row.by)
            )
        case Act.WITHDRAWN if found.proposals.pop(row.number, None) is not None:
            pass
        case _:
            raise PromptBroken(
                f"act {row.seq} on the prompt {row.name} follows from none before it"
            )
