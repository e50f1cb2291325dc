"""Reads runs and their gates, as rows and pages."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar
from uuid import UUID

from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import Case, Count, F, OuterRef, Q, QuerySet, Subquery, When
from django.db.models.functions import Coalesce, JSONObject, Left
from django.utils import timezone

from runtime.core.run.continuation import RunStatus, merge_people
from runtime.core.run.retries import RateLimitWait
from runtime.models import Gate, Run, Signal, WaitingCall
from runtime.ports import wiring
from runtime.reads import filters, labels, run_figures
from runtime.reads.redaction import redact
from runtime.reads.suspects import Suspicion, read_suspicions
from runtime.store import archived_runs, pool
from runtime.store.tables.signals import CANCEL, MESSAGE, PAUSE, RESUME

MAX_WHY_CHARACTERS = 200  # characters of a reason that a list shows

T = TypeVar("T")
R = TypeVar("R", bound="RunRow")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """One page of a list; `next` is the cursor of the page after it, None at the end."""

    items: tuple[T, ...]
    next: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GateView:
    """A gate whose decision the worker has not applied; `approval` is its request, if it has one, with `sentence`."""

    id: UUID
    run: UUID
    kind: str
    frame: str
    call: str
    tool: str
    path: tuple[str, ...]
    state: str
    opened_at: datetime
    approval: UUID | None
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitView:
    """A call that waits for an event whose data contains `match`, for no longer than `until`."""

    frame: str
    call: str
    event: str
    match: Any
    until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LegalHold:
    """A legal hold: nothing of the run is erased or archived until an admin lifts it."""

    by: str
    at: datetime
    reason: str

    @classmethod
    def read(cls, stored: Any) -> "LegalHold | None":
        """Read the column of the run."""
        return stored and cls(**{**stored, "at": datetime.fromisoformat(stored["at"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """A run as a list shows it."""

    id: UUID
    agent: str
    status: str
    business_key: str | None
    requester: str
    created_at: datetime
    ended_at: datetime | None
    due_at: datetime | None
    gates: tuple[GateView, ...]
    position: int
    awaits: str | None
    limited: tuple[RateLimitWait, ...]
    awaits_store: str | None
    suspicion: Suspicion | None
    archived_at: datetime | None
    without_worker: tuple[
        str, ...
    ] = ()  # agents that no live worker has, see `workers.with_missing_agents`

    @property
    def store_problem(self) -> str:
        """Why the object store is down, if the run waits for it; else empty."""
        stopped = self.ended or self.status == RunStatus.QUARANTINED
        return "" if stopped else self.awaits_store or ""

    @property
    def last_answer(self) -> str:
        """The last answer of the provider that the run waits for; empty if it waits for none."""
        return redact(self.awaits or "") if self.status == RunStatus.WAITING else ""

    @property
    def next_try_at(self) -> datetime | None:
        """The time of the next call to the provider that the run waits for."""
        return self.due_at if self.last_answer else None

    @property
    def rate_limits(self) -> tuple[RateLimitWait, ...]:
        """The model calls that wait for the rate limit of their provider, while the run is not stopped."""
        return self.limited if self.status in run_figures.MAY_WAIT else ()

    @property
    def status_text(self) -> str | None:
        """Describe the status further if the run waits for a worker, the object store, a trial or its provider."""
        if self.without_worker:
            return (
                f"no live worker has {', '.join(self.without_worker)}, so the run does not continue"
            )
        if self.store_problem:
            return f"waits for the object store: {self.store_problem}"
        if self.suspicion is not None:
            return self.suspicion.text
        if self.rate_limits:
            return run_figures.describe_rate_limits(self.rate_limits)
        if not self.last_answer:
            return None
        when = f", next try {self.due_at.isoformat(timespec='seconds')}" if self.due_at else ""
        return f"waits for the provider{when}, last answer: {self.last_answer}"

    @property
    def readable_key(self) -> str:
        """The business key; empty if a protocol made it."""
        return labels.format_business_key(self.business_key)

    @property
    def ended(self) -> bool:
        """Whether the run has ended."""
        return self.ended_at is not None

    @property
    def lasted(self) -> timedelta:
        """The time from start to end, or until now."""
        return (self.ended_at or timezone.now()) - self.created_at

    @property
    def waited(self) -> timedelta | None:
        """The age of the oldest open gate; None while no gate is open."""
        opened_at = [gate.opened_at for gate in self.gates if gate.state == Gate.State.OPEN]
        if self.status != RunStatus.SUSPENDED or not opened_at:
            return None
        return timezone.now() - min(opened_at)


# The fields of a row that are columns of its run.
_COLUMNS = [field.name for field in fields(RunRow) if hasattr(Run, field.name)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLine(RunRow):
    """A row of the list of runs. `reason_start` is the beginning of the reason for a bad end, `answer` of the output.

    `title` is the readable business key, or the first fields of the input, or the agent.
    """

    reason_start: str
    title: str
    answer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDetail(RunRow):
    """A whole run; `reason` says why it failed, was quarantined or cancelled.

    `removed_at` is when retention erased input, output, reason and journal, `archived_at` when they left for the
    archive: `with_archive` reads them. `unheard` counts messages not yet delivered
    to the agent, including pending signals. `waits` are the events its calls wait for, `origin` the people in its
    origin, who cannot decide in it. Entries of a long run before `history_begins` were removed at `history_removed_at`.
    """

    input: Any
    output: Any
    reason: str | None
    removed_at: datetime | None
    legal_hold: LegalHold | None
    unheard: int
    waits: tuple[WaitView, ...]
    origin: tuple[str, ...]
    thread: str | None
    history_begins: int = 1
    history_removed_at: datetime | None = None

    @property
    def answer(self) -> Any:
        """The output for people."""
        return labels.readable_output(self.business_key, self.output)


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRequests:
    """Signals not yet applied: a cancellation, and the last pause (True) or resume (False)."""

    cancel: bool
    pause: bool | None


def read_runs_page(
    condition: Q, *, limit: int = 50, cursor: UUID | None = None, oldest: bool = False
) -> Page[RunLine]:
    """List the runs that meet `condition`, newest or `oldest` first, without whole inputs and outputs."""
    rows = _select_runs(condition, None, limit, cursor, oldest=oldest).defer(
        "input", "output", "reason", "head"
    )
    rows = rows.annotate(
        reason_start=Left("reason", MAX_WHY_CHARACTERS),
        first_input=Left("input", filters.READ_CHARACTERS),
        first_output=Left("output", filters.READ_CHARACTERS),
    )
    return _build_page(rows, limit, _build_line)


def select_newest(condition: Q, number: int) -> Q:
    """Return the condition for so many of the newest runs among these, for a search that must not read them all."""
    ids = Run.objects.filter(condition).order_by("-id").values_list("id", flat=True)
    oldest = ids[number - 1 : number].first()
    return condition if oldest is None else condition & Q(id__gte=oldest)


def run_details(
    condition: Q, *, business_key: str | None = None, limit: int = 50, cursor: UUID | None = None
) -> Page[RunDetail]:
    """List runs as runs_page does, with input and output."""
    return _build_page(
        _with_mail(_select_runs(condition, business_key, limit, cursor)), limit, _build_detail
    )


def run_detail(condition: Q, run: UUID) -> RunDetail | None:
    """Return a run; None if it does not meet `condition`."""
    row = _with_mail(Run.objects.filter(condition, id=run)).first()
    return (
        None
        if row is None
        else _build_detail(row, _list_gates(Q(run=row)), read_suspicions([row]).get(run))
    )


def find_archive_key(run: UUID) -> str | None:
    """Return the key of an archived run's file in the object store."""
    archived_run = archived_runs.find_file(pool.use_django_connection(), run)
    return None if archived_run is None else archived_run.key


def with_archive(detail: RunDetail) -> RunDetail:
    """Return a run with its input, output and reason, from its file if it is archived.

    Raises Tampered, KeyMissing or ObjectStoreDown.
    """
    if detail.archived_at is None:
        return detail
    if (read := archived_runs.read_for_page(pool.use_django_connection(), detail.id)) is None:
        return run_detail(Q(), detail.id) or detail  # restored or erased since it was read
    output, reason = read.row["output"], read.row["reason"]
    return replace(
        detail,
        input=as_json(read.row["input"]),
        output=None if output is None else as_json(output),
        reason=None if reason is None else redact(reason),
        history_begins=read.mark.position + 1,
        history_removed_at=read.mark.at,
    )


def count_quarantined(condition: Q) -> int:
    """Count the quarantined runs among those that meet `condition`. This reads active runs alone."""
    return Run.objects.filter(condition, status=RunStatus.QUARANTINED, ended_at=None).count()


def is_cancel_requested(run: UUID) -> bool:
    """Tell whether a cancellation waits for a worker."""
    return Signal.objects.filter(run_id=run, kind=CANCEL).exists()


def read_pending_requests(run: UUID) -> PendingRequests:
    """Return cancel, pause and resume signals that no worker has applied yet."""
    sent = Signal.objects.filter(run_id=run, kind__in=[CANCEL, PAUSE, RESUME]).order_by("id")
    kinds = list(sent.values_list("kind", flat=True))
    paces = [kind == PAUSE for kind in kinds if kind != CANCEL]
    return PendingRequests(cancel=CANCEL in kinds, pause=paces[-1] if paces else None)


def is_paused(run: UUID) -> bool:
    """Tell whether the run is paused, also if no worker has applied the pause or the resume yet."""
    pause = read_pending_requests(run).pause
    if pause is not None:
        return pause
    return Run.objects.filter(id=run, status=RunStatus.PAUSED).exists()


def _select_runs(
    condition: Q,
    business_key: str | None,
    limit: int,
    cursor: UUID | None,
    *,
    oldest: bool = False,
) -> QuerySet[Run]:
    runs = Run.objects.filter(condition).order_by("id" if oldest else "-id")
    if business_key is not None:
        runs = runs.filter(business_key=business_key)
    if cursor is not None:
        runs = runs.filter(id__gt=cursor) if oldest else runs.filter(id__lt=cursor)
    return runs[: limit + 1]  # one more, to know whether another page follows


_AWAITED = (
    WaitingCall.objects.filter(run_id=OuterRef("pk"))
    .order_by("frame", "call")
    .values(
        wait=JSONObject(frame="frame", call="call", event="event", match="match", until="until")
    )
)


def _with_mail(runs: QuerySet[Run]) -> QuerySet[Run]:
    waiting = (
        Signal.objects.filter(run=OuterRef("pk"), kind=MESSAGE)
        .values("run")
        .annotate(number=Count("id"))
        .values("number")
    )
    return runs.annotate(
        messages=F("unheard") + Coalesce(Subquery(waiting), 0),
        awaited=ArraySubquery(_AWAITED),
        history_end=Case(When(removed_at=None, archived_at=None, then=F("pruning__position"))),
        history_removed_at=F("pruning__at"),
    )


def _build_page(
    rows: Iterable[Run],
    limit: int,
    make: Callable[[Run, Sequence[GateView], Suspicion | None], R],
) -> Page[R]:
    runs = list(rows)
    page_rows = runs[:limit]
    gates: dict[UUID, list[GateView]] = {row.id: [] for row in page_rows}
    for gate in _list_gates(Q(run__in=[row.id for row in page_rows])):
        gates[gate.run].append(gate)
    suspected = read_suspicions(page_rows)
    return Page(
        items=tuple(make(row, gates[row.id], suspected.get(row.id)) for row in page_rows),
        next=str(page_rows[-1].id) if len(runs) > limit else None,
    )


def _list_gates(condition: Q) -> tuple[GateView, ...]:
    pending = Q(state__in=[Gate.State.OPEN, Gate.State.DECIDED])
    rows = list(Gate.objects.filter(condition & pending).order_by("opened_at", "id"))
    links = wiring.resolve_approvals().map_links([row.id for row in rows]) if rows else {}
    gates = []
    for row in rows:
        link = links.get(row.id)
        gate = GateView(
            id=row.id,
            run=row.run_id,
            kind=row.kind,
            frame=row.frame,
            call=row.call,
            tool=row.tool,
            path=tuple(row.path),
            state=row.state,
            opened_at=row.opened_at,
            approval=link.id if link else None,
            sentence=link.sentence if link else "",
        )
        gates.append(gate)
    return tuple(gates)


def _build_row(run: Run, gates: Sequence[GateView], suspicion: Suspicion | None) -> dict[str, Any]:
    """Return the fields of RunRow."""
    return {
        **{name: getattr(run, name) for name in _COLUMNS},
        "gates": tuple(gates),
        "limited": run_figures.read_rate_limits(run.limited),
        "suspicion": suspicion,
    }


def _build_line(run: Run, gates: Sequence[GateView], suspicion: Suspicion | None = None) -> RunLine:
    reason: str | None = getattr(run, "reason_start", None)
    return RunLine(
        **_build_row(run, gates, suspicion),
        reason_start=redact(reason or ""),
        title=labels.format_business_key(run.business_key)
        or filters.format_title(getattr(run, "first_input", None), run.agent)
        or run.agent,
        answer=filters.cut_answer(getattr(run, "first_output", None), run.business_key),
    )


def _build_detail(
    run: Run, gates: Sequence[GateView], suspicion: Suspicion | None = None
) -> RunDetail:
    history: dict[str, Any] = {}
    end: int | None = getattr(run, "history_end", None)
    if end is not None:  # the journal was shortened; a run without payloads has none
        removed_at: datetime | None = getattr(run, "history_removed_at", None)
        history = {"history_begins": end + 1, "history_removed_at": removed_at}
    waits = []
    for wait in getattr(run, "awaited", ()):
        until = datetime.fromisoformat(wait["until"])
        waits.append(WaitView(**{**wait, "match": redact(wait["match"]), "until": until}))
    return RunDetail(
        **_build_row(run, gates, suspicion),
        input=as_json(run.input),
        output=None if run.output is None else as_json(run.output),
        reason=None if run.reason is None else redact(run.reason),
        removed_at=run.removed_at,
        legal_hold=LegalHold.read(run.legal_hold),
        unheard=getattr(run, "messages", 0),
        waits=tuple(waits),
        origin=merge_people([run.requester], run.origin),
        thread=run.thread,
        **history,
    )


def as_json(text: str) -> Any:
    """Decode a stored document with secrets redacted; return a damaged one as text."""
    try:
        return redact(json.loads(text))
    except (ValueError, RecursionError):
        return redact(text)
