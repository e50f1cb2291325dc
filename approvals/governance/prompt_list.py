"""Reads prompts for pages and the API: their versions, labels, proposals, and who did what.

An admin asks for a trial of a version on recorded runs, a worker performs it, and its replies are read here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import yaml
from django.db import transaction
from yaml.nodes import MappingNode, ScalarNode

from approvals import clock
from approvals.errors import PromptBroken, PromptRefused, UnknownPrompt
from approvals.governance import prompt_versions
from approvals.governance.prompt_versions import CODE, LOG, PRODUCTION, Activation, ProposedVersion
from approvals.models import PromptAct
from approvals.rights.access import SecondAdmin
from approvals.rules import plain_yaml
from approvals.signed.audit import log_change
from runtime.control import jobs
from runtime.core.run.events import AgentChange
from runtime.core.values.ids import is_prompt_name
from runtime.core.values.json_values import hash_value
from runtime.core.values.texts import find_placeholders
from runtime.errors import InvalidInput
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.ports.agents import PromptUser
from runtime.reads.version_diff import VersionDifference, list_differences
from runtime.store import pool
from runtime.store.tables.jobs import MAX_RUNS, TRIALS, TrialRow

MAX_FILE = 256 * 1024  # characters; a text of a prompt has at most a quarter of it
FIELDS = ("prompt", "note", "text")
_TEXT = "tag:yaml.org,2002:str"


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptText:
    """One version as it is shown; number 0 is the text in the code of `author`, an agent."""

    number: int
    text: str
    note: str = ""
    author: str | None = None
    at: datetime | None = None
    labels: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """The digest of the text."""
        return hash_value(self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingProposal:
    """A proposal, and whether the reader may confirm it."""

    proposal: ProposedVersion
    may_confirm: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptView:
    """A prompt. `broken` says why its stored rows do not verify, then only the text in the code is known.

    `texts` are its versions, newest first, then the different texts in the code; `production` is the number that new
    runs use. `variables` must be in each version.
    """

    name: str
    agents: tuple[str, ...]
    variables: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    texts: tuple[PromptText, ...] = ()
    production: int = CODE
    waiting: tuple[WaitingProposal, ...] = ()
    activations: tuple[Activation, ...] = ()
    acts: tuple[PromptAct, ...] = field(default=(), repr=False)
    broken: str = ""

    def text(self, number: int) -> PromptText:
        """Return a version. Raise UnknownPrompt."""
        for version in self.texts:
            if version.number == number:
                return version
        raise UnknownPrompt

    @property
    def current(self) -> PromptText | None:
        """The version in production; None if neither rows nor an agent have a text."""
        return next((version for version in self.texts if version.number == self.production), None)

    @property
    def settled(self) -> frozenset[int]:
        """The versions that cannot be proposed: the one in production and those that wait."""
        return frozenset({self.production, *(waiting.proposal.number for waiting in self.waiting)})

    @property
    def versions(self) -> int:
        """The number of saved versions."""
        return sum(version.number != CODE for version in self.texts)


def list_prompts(reader: str | None = None) -> tuple[PromptView, ...]:
    """List the prompts that agents use or people changed, by name, for this reader."""
    users = wiring.resolve_catalogue().prompts()
    names = PromptAct.objects.order_by("name").values_list("name", flat=True).distinct()
    return tuple(
        _build_view(name, users.get(name, ()), reader) for name in sorted({*users, *names})
    )


def read_prompt(name: str, reader: str | None = None) -> PromptView:
    """Return one prompt for this reader. Raise UnknownPrompt."""
    users = wiring.resolve_catalogue().prompts().get(name, ()) if is_prompt_name(name) else ()
    view = _build_view(name, users, reader) if is_prompt_name(name) else None
    if view is None or not (users or view.acts or view.broken):
        raise UnknownPrompt
    return view


def compare_versions(view: PromptView, before: int, after: int) -> tuple[VersionDifference, ...]:
    """Compare two versions line by line. Raise UnknownPrompt."""
    change = AgentChange(
        part=f"{_name_version(before)} → {_name_version(after)}",
        before=view.text(before).text,
        after=view.text(after).text,
        asks=False,
    )
    return () if change.before == change.after else list_differences([change])


def _build_view(name: str, users: Sequence[PromptUser], reader: str | None) -> PromptView:
    common = frozenset.intersection(*(user.fields for user in users)) if users else ()
    in_code = dict[
        str, str
    ]()  # each text in the code, more if agents have different ones, and its first agent
    for user in users:
        in_code.setdefault(user.text, user.agent)
    base = PromptView(
        name=name,
        agents=tuple(user.agent for user in users),
        variables=tuple(sorted({name for user in users for name in find_placeholders(user.text)})),
        fields=tuple(sorted(common)),
        texts=tuple(
            PromptText(number=CODE, text=text, author=agent) for text, agent in in_code.items()
        ),
    )
    try:
        rows = LOG.rows(name=name)
        history = prompt_versions.build_history(rows, name, clock.read_time())
    except PromptBroken as exc:
        return PromptView(
            name=name, agents=base.agents, texts=base.texts, broken=str(exc) or "unknown"
        )
    labels = {PRODUCTION: history.in_production, **history.labels}
    saved = (
        PromptText(
            number=version.number,
            text=version.text,
            note=version.note,
            author=version.author,
            at=version.at,
            labels=tuple(label for label, number in labels.items() if number == version.number),
        )
        for version in reversed(history.versions.values())
    )
    return PromptView(
        name=name,
        agents=base.agents,
        variables=base.variables,
        fields=base.fields,
        texts=(*saved, *base.texts),
        production=history.in_production,
        waiting=tuple(
            WaitingProposal(
                proposal=proposal,
                may_confirm=reader is not None and SecondAdmin(author=proposal.by).may_be(reader),
            )
            for proposal in history.proposals.values()
        ),
        activations=tuple(reversed(history.activations)),
        acts=tuple(reversed(rows)),
    )


def _name_version(number: int) -> str:
    return f"version {number}" if number != CODE else "the text in the code"


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptFile:
    """The content of a file."""

    prompt: str
    text: str
    note: str = ""


def write_file(name: str, version: PromptText) -> str:
    """Return the file of a version."""
    note = {"note": version.note} if version.note else {}
    fields = {"prompt": name, **note, "text": version.text + "\n"}
    return yaml.dump(fields, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1000)


def read_file(text: str) -> PromptFile:
    """Read a file. Raise InvalidInput naming the field, or `file` with the line."""
    if len(text) > MAX_FILE:
        raise InvalidInput("file", f"has {len(text)} characters, at most {MAX_FILE} are allowed")
    try:
        root = plain_yaml.compose(text)
    except plain_yaml.YamlInvalid as exc:
        raise InvalidInput("file", f"has an error in {exc}") from exc
    if not isinstance(root, MappingNode):
        raise InvalidInput("file", f"must have the fields {', '.join(FIELDS)}")
    fields: dict[str, str] = {}
    for key, value in root.value:
        name = key.value if isinstance(key, ScalarNode) else "a list"
        if name not in FIELDS:
            raise InvalidInput("file", f"has the field {name[:40]}; allowed: {', '.join(FIELDS)}")
        if name in fields:
            raise InvalidInput(name, "is there twice")
        if not isinstance(value, ScalarNode) or value.tag != _TEXT:
            raise InvalidInput(name, f"must be a text, line {value.start_mark.line + 1}")
        fields[name] = value.value
    for name in ("prompt", "text"):
        if name not in fields:
            raise InvalidInput(name, "is required")
    return PromptFile(**fields)


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, so that a review shows their lines."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(_TEXT, text, style="|" if "\n" in text else None),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptTrialView:
    """A trial as it is shown. Each of its `runs` has `run`, `error` and `replies`."""

    stored: TrialRow
    runs: list[dict[str, Any]]

    @property
    def replies(self) -> int:
        """The number of recorded replies that a model was asked for again."""
        return sum(1 for _ in self._replies())

    @property
    def differ(self) -> int:
        """The number of tried replies that are not as the recorded ones."""
        return sum(reply["differs"] for reply in self._replies())

    @property
    def cost(self) -> float:
        """What the tried replies of known price cost, in US dollars."""
        return sum(cost for cost in self._costs() if cost is not None) / 1_000_000

    @property
    def unpriced(self) -> int:
        """The number of tried replies of unknown price."""
        return sum(cost is None for cost in self._costs())

    def _replies(self) -> Iterator[dict[str, Any]]:
        return (reply for run in self.runs for reply in run["replies"])

    def _costs(self) -> Iterator[int | None]:
        return (reply["tried"]["cost"] for reply in self._replies() if reply["tried"] is not None)


def ask(name: str, number: int, runs: object, *, actor: Actor) -> PromptTrialView:
    """Have a worker try a version on so many recorded runs.

    Raise InvalidInput naming `runs`, UnknownPrompt, or PromptRefused for a person without the right and while another
    trial of the prompt has not ended.
    """
    prompt_versions.require_right(actor)
    if isinstance(runs, bool) or not isinstance(runs, int) or not 1 <= runs <= MAX_RUNS:
        raise InvalidInput("runs", f"must be a number from 1 to {MAX_RUNS}")
    current = read_prompt(name)
    if current.broken:
        raise PromptRefused(f"The stored prompt does not verify: {current.broken}.")
    if not current.agents:
        raise PromptRefused(f"No agent uses the prompt {name}.")
    current.text(number)
    version = {"prompt": name, "number": number, "wanted": runs}
    with transaction.atomic():
        trial = jobs.enqueue(
            pool.use_django_connection(), TRIALS, **version, by=actor.person, token=actor.token
        )
        if trial is None:
            raise PromptRefused(f"Another trial of the prompt {name} has not ended.")
        log_change(
            actor.person,
            f"asked for a trial of version {number} of the prompt {name} on {runs} runs",
        )
    return find(trial)


def find(trial: UUID) -> PromptTrialView:
    """Return a trial. Raise UnknownPrompt."""
    with pool.join_transaction() as connection:
        row = TRIALS.find(connection, trial)
    if row is None:
        raise UnknownPrompt
    return PromptTrialView(stored=row, runs=row.runs)


def list_trials(name: str, number: int) -> list[TrialRow]:
    """Return the trials of a version without their replies, the newest first."""
    with pool.join_transaction() as connection:
        return TRIALS.list_newest(connection, prompt=name, number=number)
