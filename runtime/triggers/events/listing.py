"""What people read about triggers: the list, one with its events and its acts, and the trial of a definition."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from runtime.core.digest import require_json
from runtime.core.errors import NotJson
from runtime.errors import InvalidInput, Tampered
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.queries.processes.workers import LATE_SECONDS
from runtime.store import pool
from runtime.store.pool import Connection
from runtime.store.tables.triggers import (
    received_events,
    sources,
    trigger_events,
    triggers,
    webhooks,
)
from runtime.store.tables.triggers.sources import Kind, SourceRow
from runtime.store.tables.triggers.trigger_events import EventRow
from runtime.store.tables.triggers.triggers import TriggerRow
from runtime.triggers import rights
from runtime.triggers.events import changes, mapping, trigger
from runtime.triggers.events.definition import Definition, Wakes
from runtime.triggers.events.trigger import CurrentTrigger
from runtime.triggers.schedule import Status

HISTORY = 50  # events on a page
TRIED = 5  # recorded events of a trial
ACTS = 20  # acts on a page
SAMPLE = ("id", "source", "name", "subject", "time", "data")


@dataclass(frozen=True, slots=True, kw_only=True)
class PastAct:
    """An act of a person. `detail` names the event of a retry."""

    act: str
    by: str | None
    at: datetime
    detail: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookView:
    """The webhook of a trigger, without its address and secret, and the deliveries that were refused."""

    scheme: str
    header: str
    refused: int
    refused_at: datetime | None
    refused_why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceView:
    """What a trigger reads, the last look at it that succeeded, and why a later one did not. `late` if none did."""

    kind: str
    place: str
    looked_at: datetime | None
    problem: str
    late: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerView:
    """One trigger for a reader. `problem` says why it starts nothing although it is active.

    `more` is the number of the event before which the earlier ones begin, None without.
    """

    id: UUID
    status: str
    problem: str
    owner: str
    makers: tuple[str, ...]
    definition: Definition
    history: tuple[EventRow, ...]
    more: int | None
    acts: tuple[PastAct, ...]
    changeable: bool
    webhook: WebhookView | None
    source: SourceView | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The result of trying a definition on one event: nothing is started or kept.

    `data` is that of the event. `problem` names the wrong place and says why, empty without one. `input` and the keys
    are None without a result.
    """

    event: str
    data: Any
    passes: bool
    key: str | None
    business_key: str | None
    input: Any
    problem: str


def rows(actor: Actor) -> tuple[list[TriggerRow], bool]:
    """List the triggers that the actor may read: their own, or all as an admin; say too if there are more.

    Raise Forbidden.
    """
    owner = rights.owner_shown(actor)
    with pool.in_transaction() as connection:
        return triggers.listed(connection, owner)


def one(id: UUID, actor: Actor, before: int | None = None) -> TriggerView:
    """Read a trigger, with its events before one. Raise Forbidden, NoSuchTrigger, Tampered, KeyMissing."""
    wiring.access().require(actor, "runs:read")
    with pool.in_transaction() as connection:
        row = changes.readable(connection, id, actor)
        return _view(connection, row, before, changeable=rights.may_change(row.owner, actor))


def tried(
    sent: Mapping[str, object], actor: Actor, *, sample: Any = None, id: UUID | None = None
) -> list[Trial]:
    """Try a definition on a sample, and on the newest events of a trigger. It starts and keeps nothing.

    Raise Forbidden, NoSuchTrigger, UnknownAgent, or InvalidInput naming the field, `sample` if it is that.
    """
    wiring.access().require(actor, changes.SCOPE)
    defined = changes.checked(sent)
    facts = [] if sample is None else [_sample(sample, defined.event)]
    if id is not None:
        with pool.in_transaction() as connection:
            changes.readable(connection, id, actor)
            for row in trigger_events.newest(connection, id, TRIED):
                with suppress(Tampered):  # its row says so
                    facts.append(received_events.read(connection, row.number).facts)
    return [_trial(defined, one) for one in facts]


def _trial(one: Definition, facts: Mapping[str, Any]) -> Trial:
    passes, key, business_key, made, problem = False, None, None, None, ""
    try:
        passes = mapping.passes(one.filter, facts)
        if passes:
            key = one.key_of(facts)
            business_key = one.business_key_of(facts, "trial")
            one.thread_of(facts)
        if passes and one.wakes != Wakes.ONLY:
            made = mapping.applied(one.mapping, facts)
            wiring.catalogue().check_input(one.agent, made)
    except InvalidInput as exc:
        problem = exc.all_of_it
    return Trial(
        event=facts["id"],
        data=facts["data"],
        passes=passes,
        key=key,
        business_key=business_key if one.business_key else None,
        input=made,
        problem=problem,
    )


def _sample(sample: Any, name: str) -> dict[str, Any]:
    """Return the facts of a sample: a whole event, or the data of one. Raise InvalidInput."""
    try:
        require_json(sample, "sample")
    except NotJson as exc:
        raise InvalidInput(exc.where, exc.why) from exc
    if not isinstance(sample, dict):
        raise InvalidInput("sample", "must be an object")
    whole = isinstance(sample.get("data"), dict) and set(sample) <= set(SAMPLE)
    given = sample if whole else {"data": sample}
    empty = {"id": "sample", "source": "", "name": name, "subject": "", "time": ""}
    texts = {field: str(given.get(field, empty[field])) for field in empty}
    return {**texts, "data": given["data"]}


def _view(
    connection: Connection, row: TriggerRow, before: int | None, *, changeable: bool
) -> TriggerView:
    kept = triggers.acts(connection, row.id, ACTS)
    found = trigger.of_act(row, kept[0].body)
    events = trigger_events.newest(connection, row.id, HISTORY + 1, before)
    shown = events[:HISTORY]
    return TriggerView(
        id=row.id,
        status=row.state,
        problem=row.problem,
        owner=found.owner,
        makers=found.makers,
        definition=found.definition,
        history=tuple(shown),
        more=shown[-1].number if len(events) > HISTORY else None,
        acts=tuple(
            PastAct(
                act=one.act, by=one.by, at=one.at, detail=json.loads(one.body).get("detail", {})
            )
            for one in kept
        ),
        changeable=changeable and row.state != Status.ENDED,
        webhook=_webhook(connection, row.id, found),
        source=_source(found.definition, sources.read(connection, row.id), pool.now(connection)),
    )


def _webhook(connection: Connection, id: UUID, one: CurrentTrigger) -> WebhookView | None:
    if one.webhook is None:
        return None
    row = webhooks.read(connection, id)
    return WebhookView(
        scheme=one.webhook.scheme,
        header=one.webhook.header,
        refused=0 if row is None else row.refused,
        refused_at=None if row is None else row.refused_at,
        refused_why="" if row is None else row.refused_why,
    )


def _source(one: Definition, row: SourceRow | None, now: datetime) -> SourceView | None:
    if row is None:
        return None
    kind = next((kind for kind in Kind if getattr(one, kind)), Kind.FOLDER)
    late = timedelta(seconds=LATE_SECONDS[kind.loop])
    return SourceView(
        kind=kind,
        place=getattr(one, kind),
        looked_at=row.looked_at,
        problem=row.problem,
        late=row.looked_at is not None and now - row.looked_at > late,
    )
