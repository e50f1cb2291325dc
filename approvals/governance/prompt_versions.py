"""The versions of a prompt, from the signed acts on it: saved, labelled, proposed, confirmed; and that in production.

A missing or changed act is an error, never another text.

A version goes into production by the rule of two admins. A roll-back is the proposal of an earlier version, or of 0,
the text in the code.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from operator import attrgetter

from approvals import clock
from approvals.errors import PromptBroken, PromptRefused, UnknownPrompt
from approvals.models import PromptAct
from approvals.rights.access import SecondAdmin, may_administer
from approvals.signed.audit import log_change
from approvals.signed.rows import SignedLog
from runtime.core.values.ids import is_prompt_name
from runtime.core.values.json_values import hash_value, is_text
from runtime.core.values.limits import MAX_INSTRUCTIONS, MAX_REASON
from runtime.core.values.texts import find_placeholders
from runtime.errors import InvalidInput
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.ports.agents import PromptVersion

Act = PromptAct.PromptChange
CODE = 0  # the number of the text in the code
PRODUCTION = "production"
MAX_VERSIONS = 1000  # of one prompt

_LABEL = re.compile(r"[a-z][a-z0-9_-]{0,39}")


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
        return hash_value(self.text)


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

    def find_in_production(self, name: str, at: datetime) -> PromptVersion | None:
        """Return the version that was in production at this time, None for the text in the code. Raise PromptBroken."""
        LOG.wait_for_appends()  # an act has its time before other connections see it
        history = build_history(_read_recent_acts(name), name, at)
        return _to_port_version(history, history.in_production)

    def version(self, name: str, number: int) -> PromptVersion | None:
        """Return a version by its number, None for the text in the code. Raise PromptBroken or UnknownPrompt."""
        return _to_port_version(
            build_history(_read_recent_acts(name), name, clock.read_time()), number
        )


def find_text_fault(name: str, number: int, digest: str) -> str | None:
    """Say why a version is not the signed text with this digest; None if it is. The text in the code is not stored."""
    if number == CODE:
        return None
    try:
        history = build_history(LOG.rows(name=name), name, clock.read_time())
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


def _read_recent_acts(name: str) -> tuple[PromptAct, ...]:
    return LOG.read_recent_rows(name=name)[0]


def check(name: object, text: object) -> str:
    """Return the text as it is saved. Raise InvalidInput naming `name` or `text` and the variable that is wrong."""
    if not isinstance(text, str) or not is_text(text):
        raise InvalidInput("text", "must be a text without NUL")
    clean = "\n".join(line.rstrip() for line in text.splitlines()).strip()
    if not 0 < len(clean) <= MAX_INSTRUCTIONS:
        raise InvalidInput("text", f"must have 1 to {MAX_INSTRUCTIONS} characters")
    users = wiring.resolve_catalogue().prompts().get(name, ()) if is_prompt_name(name) else ()  # type: ignore[call-overload]
    if not users:
        raise InvalidInput("name", f"names a prompt that no agent uses: {str(name)[:100]}")
    try:
        variables = find_placeholders(clean)
    except ValueError as exc:
        raise InvalidInput("text", f"has a wrong brace ({exc}); double a brace itself") from exc
    for user in users:
        if lacking := find_placeholders(user.text) - variables:
            raise InvalidInput(
                "text",
                f"lacks the variable {{{min(lacking)}}}, which the text of {user.agent} in the code has",
            )
        if unknown := variables - user.fields:
            raise InvalidInput(
                "text",
                f"has the variable {{{min(unknown)}}}, which the input of {user.agent} does not have",
            )
    return clean


def save(name: str, text: object, *, note: object = "", actor: Actor | None) -> int:
    """Save a text as a new version and return its number; the last version's if that has the same text.

    None is the command line. Raise InvalidInput naming the field, and PromptRefused for a person without the right.
    """
    clean = check(name, text)
    if not isinstance(note, str) or not is_text(note) or len(note) > MAX_REASON:
        raise InvalidInput("note", f"must be a text of at most {MAX_REASON} characters")
    with _lock_prompt(name, actor) as history:
        number = len(history.versions)
        if number and history.versions[number].text == clean:
            return number
        if number == MAX_VERSIONS:
            raise PromptRefused(f"The prompt {name} has {MAX_VERSIONS} versions, the most it may.")
        _append(history, actor, Act.SAVED, number + 1, text=clean, note=note.strip())
    return number + 1


def label_version(name: str, label: object, number: int, *, actor: Actor | None) -> None:
    """Let a label other than `production` point to a version. Raise InvalidInput, PromptRefused or UnknownPrompt."""
    if not isinstance(label, str) or not _LABEL.fullmatch(label):
        raise InvalidInput("label", "must be 1 to 40 small letters, digits, - or _")
    if label == PRODUCTION:
        raise InvalidInput("label", "production is set by a proposal that another admin confirms")
    with _lock_prompt(name, actor) as history:
        if number not in history.versions:
            raise UnknownPrompt
        _append(history, actor, Act.LABELLED, number, label=label)


def propose(name: str, number: int, *, actor: Actor | None) -> None:
    """Propose a version for production, which then waits for another admin.

    Raise PromptRefused if it waits or is in production already, or lacks a variable today, and UnknownPrompt.
    """
    with _lock_prompt(name, actor) as history:
        if number != CODE and number not in history.versions:
            raise UnknownPrompt
        _check_again(history, number)
        if number in history.proposals:
            raise PromptRefused(f"Version {number} waits for a confirmation already.")
        if number == history.in_production:
            raise PromptRefused(f"{name_version(number)} is in production already.")
        row = _append(history, actor, Act.PROPOSED, number)
        if alone_from := SecondAdmin(author=row.by).compute_lone_start(row.at):
            _append(history, actor, Act.SCHEDULED, number, effective_at=alone_from)


def confirm(name: str, number: int, *, actor: Actor | None) -> None:
    """Put a proposed version in production. None is the command line, which may always confirm.

    Raise PromptRefused if it does not wait, or the actor is not independent of the admin who proposed it.
    """
    with _lock_prompt(name, actor) as history:
        waiting = _require_waiting(history, number)
        if actor is not None and not SecondAdmin(author=waiting.by).may_be(actor.person):
            raise PromptRefused(
                f"Another admin must confirm {name_version(number)}: one who did not propose it, did not get their own"
                " right from the one who did, and did not give it to them."
            )
        _check_again(history, number)
        _append(history, actor, Act.CONFIRMED, number)


def withdraw(name: str, number: int, *, actor: Actor | None) -> None:
    """Withdraw a proposal before the version is in production. Any admin may. Raise PromptRefused."""
    with _lock_prompt(name, actor) as history:
        _require_waiting(history, number)
        _append(history, actor, Act.WITHDRAWN, number)


def require_right(actor: Actor) -> None:
    """Raise PromptRefused unless the actor may change prompts."""
    if not may_administer(actor):
        raise PromptRefused(f"{actor.person} may not change prompts.")


def _check_again(history: PromptHistory, number: int) -> None:
    """Raise PromptRefused if the agents of today could not use the version."""
    if number == CODE:
        return
    try:
        check(history.name, history.versions[number].text)
    except InvalidInput as exc:
        raise PromptRefused(f"Version {number} {exc.detail}.") from exc


def _require_waiting(history: PromptHistory, number: int) -> ProposedVersion:
    waiting = history.proposals.get(number)
    if waiting is None:
        raise PromptRefused(f"{name_version(number)} does not wait for a confirmation.")
    return waiting


def name_version(number: int) -> str:
    """Name a version at the beginning of a sentence."""
    return f"Version {number}" if number != CODE else "The text in the code"


def _append(
    history: PromptHistory, actor: Actor | None, act: Act, number: int, **columns: object
) -> PromptAct:
    by, token = (actor.person, actor.token) if actor else (None, None)
    log_change(by, f"{act} version {number} of the prompt {history.name}")
    return LOG.append(act, by=by, token=token, name=history.name, number=number, **columns)


@contextmanager
def _lock_prompt(name: str, actor: Actor | None) -> Iterator[PromptHistory]:
    """Run the block in a transaction that holds the lock for changes, with the prompt's history.

    Raise PromptRefused, or UnknownPrompt for a name that no prompt has.
    """
    if actor is not None:
        require_right(actor)
    if not is_prompt_name(name):
        raise UnknownPrompt
    with LOG.hold_lock():
        try:
            yield build_history(LOG.rows(name=name), name, clock.read_time())
        except PromptBroken as exc:
            raise PromptRefused(f"The stored prompt does not verify: {exc}.") from exc
