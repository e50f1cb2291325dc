"""The versions of a prompt and which is in production, from the signed acts on it.

A missing or changed act is an error, never another text.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from operator import attrgetter

from approvals import clock
from approvals.errors import PromptBroken, UnknownPrompt
from approvals.models import PromptAct
from approvals.signed.log import SignedLog
from runtime.core.values.json_values import sha256_of
from runtime.ports.prompts import PromptVersion

Act = PromptAct.PromptChange
CODE = 0  # the number of the text in the code
PRODUCTION = "production"


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
    versions: dict[int, StoredPromptVersion] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    proposals: dict[int, ProposedVersion] = field(default_factory=dict)
    activations: list[Activation] = field(default_factory=list)

    @property
    def in_production(self) -> int:
        """The number of the version that was put in production last, CODE without one."""
        return self.activations[-1].number if self.activations else CODE


def build_history(rows: Sequence[PromptAct], name: str, at: datetime) -> PromptHistory:
    """Return the history of one prompt at a time, by its verified acts. Raise PromptBroken."""
    history = LOG.fold((row for row in rows if row.at <= at), PromptHistory(name=name))
    _take_effect(history, at)
    return history


def _take_effect(history: PromptHistory, at: datetime) -> None:
    """Put in production what the only admin scheduled for a time that has come."""
    due = [
        proposal
        for proposal in history.proposals.values()
        if proposal.effective_at and proposal.effective_at <= at
    ]
    for proposal in sorted(due, key=attrgetter("effective_at")):
        number, start = proposal.number, proposal.effective_at
        del history.proposals[number]
        assert start is not None  # it is due
        history.activations.append(
            Activation(number=number, at=start, proposed_by=proposal.by, alone=True)
        )


def _apply(history: PromptHistory, row: PromptAct) -> PromptHistory:
    """Take one act into the history. Raise PromptBroken if it does not follow from those before."""
    _take_effect(history, row.at)
    match row.act:
        case Act.SAVED if row.number == len(history.versions) + 1:
            history.versions[row.number] = StoredPromptVersion(
                number=row.number, text=row.text, note=row.note, author=row.by, at=row.at
            )
        case Act.LABELLED if row.number in history.versions:
            history.labels[row.label] = row.number
        case Act.PROPOSED if row.number in {CODE, *history.versions}:
            history.proposals[row.number] = ProposedVersion(number=row.number, by=row.by, at=row.at)
        case Act.SCHEDULED if (proposal := history.proposals.get(row.number)) is not None:
            history.proposals[row.number] = replace(proposal, effective_at=row.effective_at)
        case Act.CONFIRMED if (proposal := history.proposals.pop(row.number, None)) is not None:
            history.activations.append(
                Activation(
                    number=row.number, at=row.at, proposed_by=proposal.by, confirmed_by=row.by
                )
            )
        case Act.WITHDRAWN if history.proposals.pop(row.number, None) is not None:
            pass
        case _:
            raise PromptBroken(
                f"act {row.seq} on the prompt {row.name} follows from none before it"
            )
    return history


LOG = SignedLog(
    PromptAct,
    "name",
    noun="the prompt {0.name}",
    start=PromptHistory,
    apply=_apply,
    broken=PromptBroken,
)


class StoredPrompts:
    """Implements the port Prompts with the signed acts."""

    def in_production(self, name: str, at: datetime) -> PromptVersion | None:
        """Return the version that was in production at this time, None for the text in the code. Raise PromptBroken."""
        LOG.wait_for_appends()  # an act has its time before other connections see it
        history = build_history(_recent(name), name, at)
        return _to_port_version(history, history.in_production)

    def version(self, name: str, number: int) -> PromptVersion | None:
        """Return a version by its number, None for the text in the code. Raise PromptBroken or UnknownPrompt."""
        return _to_port_version(build_history(_recent(name), name, clock.now()), number)


def problem_of(name: str, number: int, digest: str) -> str | None:
    """Say why a version is not the signed text with this digest; None if it is. The text in the code is not stored."""
    if number == CODE:
        return None
    try:
        history = build_history(LOG.rows(name=name), name, clock.now())
    except PromptBroken as exc:
        return str(exc)
    if number not in history.versions:
        return "there is no such version"
    return None if history.versions[number].digest == digest else "it has another text"


def _to_port_version(history: PromptHistory, number: int) -> PromptVersion | None:
    if number == CODE:
        return None
    if number not in history.versions:
        raise UnknownPrompt
    version = history.versions[number]
    return PromptVersion(name=history.name, number=number, text=version.text, digest=version.digest)


def _recent(name: str) -> tuple[PromptAct, ...]:
    return LOG.recent_rows(name=name)[0]
