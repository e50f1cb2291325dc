"""What people do to runs: the one choke point of every door, with the order in which it refuses.

Whoever may not read a run learns nothing about it; whoever may not cancel it learns nothing of how
the race for its end came out.
"""

from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction

from runtime import ports, queries
from runtime.control import engine
from runtime.core import amounts
from runtime.core.budgets import Budget
from runtime.core.continuation import RunStatus
from runtime.core.digest import require_json
from runtime.core.errors import NewerSchema, NotJson
from runtime.core.limits import MAX_KEY, MAX_MESSAGE, MAX_REASON
from runtime.errors import KeyMissing, NoSuchRun, NotImportable, RunEnded, Tampered
from runtime.ports import Actor, Forbidden, InvalidInput, UnknownAgent
from runtime.store import pool, starts


def start(
    *, agent: str, input: Any, business_key: str | None, actor: Actor, budget: object = None
) -> engine.Started:
    """Start a run of a published agent.

    `budget` limits this run, as `amounts.budget_of` reads it, and can only be stricter than the
    installation's. Raises, in this order: Forbidden; NotJson; UnknownAgent; InvalidInput naming the field
    of `input`, `business_key` or the limit of `budget`; BusinessKeyConflict.
    """
    access, catalogue = ports.access(), ports.catalogue()
    with pool.asking() as connection:
        born, (rights, schema) = starts.look(
            connection, access.rights(actor), catalogue.schema(agent)
        )
    access.require_read(actor, "runs:start", rights, at=born.at)
    require_json(input, "input")
    catalogue.check_read(agent, schema, input)
    _check_key(business_key)
    return engine.start(
        agent=agent,
        input=input,
        requester=actor,
        business_key=business_key,
        budget=budget_for_run(budget),
        born=born,
    )


def budget_for_run(asked: object) -> Budget | None:
    """The installation's budget, and what is asked for where that is less. Raises InvalidInput."""
    most: Budget | None = settings.ABEYANCE_BUDGET
    try:
        return amounts.within(amounts.budget_of(asked), most)
    except amounts.BadAmount as exc:
        raise InvalidInput(f"budget.{exc.name}" if exc.name else "budget", exc.why) from exc


def cancel(*, run: UUID, reason: object, actor: Actor) -> queries.RunDetail:
    """End a run: nothing new starts, and what is under way is waited for.

    Whoever asks for what is asked for already changes nothing. `reason` comes just as it came through
    the door. Raises, in this order: NoSuchRun; Forbidden (`not_eligible`); InvalidInput naming
    `reason`; RunEnded with the run's status, also for one in quarantine that does not verify.
    """
    found = readable(run, actor)
    if not ports.access().may_cancel(actor, found.requester):
        raise Forbidden("not_eligible", f"{actor.person} may not cancel runs of {found.requester}.")
    reason = _checked(reason)
    if found.status != RunStatus.CANCELLING and not queries.cancel_asked(run):
        with transaction.atomic():
            if found.status == RunStatus.QUARANTINED:
                _let_end(run, actor, reason)
            engine.cancel(run=run, actor=actor, reason=reason)
    return readable(run, actor)


def _let_end(run: UUID, actor: Actor, reason: str) -> None:
    """Let a run out of quarantine to be cancelled. Raises RunEnded if nobody could write its end."""
    try:
        engine.readmit(run=run, actor=actor, reason=reason)
    except (Tampered, KeyMissing, NewerSchema) as exc:
        raise RunEnded(RunStatus.QUARANTINED) from exc


def readmit(*, run: UUID, reason: object, actor: Actor) -> queries.RunDetail:
    """Let a run out of quarantine: it goes on where it stood, if everything that is stored of it verifies.

    Raises, in this order: NoSuchRun; Forbidden (`not_eligible`); InvalidInput naming `reason`;
    NotQuarantined; Tampered, KeyMissing or NewerSchema.
    """
    readable(run, actor)
    if not ports.access().reads_continuations(actor):
        raise Forbidden("not_eligible", "Letting runs out of quarantine is for admins.")
    why = _text(reason, "reason", MAX_REASON)
    if not why.strip():
        raise InvalidInput("reason", "is required to let a run out of quarantine")
    with transaction.atomic():
        engine.readmit(run=run, actor=actor, reason=why)
    return readable(run, actor)


def retry(*, run: UUID, reason: object, actor: Actor) -> queries.RunDetail:
    """Continue a failed run from where it failed. Its results, approvals and spending stay.

    Raise, in this order: NoSuchRun; Forbidden (`not_eligible`); InvalidInput naming `reason`; NotFailed with
    the run's status; Tampered, KeyMissing or NewerSchema.
    """
    _require_control(run, actor, "retry")
    why = _text(reason, "reason", MAX_REASON)
    if not why.strip():
        raise InvalidInput("reason", "is required to try a run again")
    with transaction.atomic():
        engine.retry(run=run, actor=actor, reason=why)
    return readable(run, actor)


def fork(*, run: UUID, position: object, actor: Actor) -> UUID:
    """Start a new run from a copy of this one as it was after entry `position`. Returns its id.

    Raises, in this order: NoSuchRun; Forbidden (`not_eligible`); InvalidInput naming `position`;
    NoSuchEntry; NotQuiescent; Tampered.
    """
    found = readable(run, actor)
    if not ports.access().may_fork(actor, found.requester):
        raise Forbidden("not_eligible", f"{actor.person} may not fork runs of {found.requester}.")
    if not isinstance(position, int) or isinstance(position, bool):
        raise InvalidInput("position", "must be the number of an entry")
    if not 1 <= position <= found.position:
        raise InvalidInput("position", f"must be an entry of the run: 1 to {found.position}")
    with transaction.atomic():
        return engine.fork(run=run, position=position, actor=actor)


def pause(*, run: UUID, reason: object, actor: Actor) -> queries.RunDetail:
    """Hold a run up: what is under way is waited for, nothing new starts until somebody resumes it.

    Whoever asks for what is so already changes nothing. Raises, in this order: NoSuchRun; Forbidden
    (`not_eligible`); InvalidInput naming `reason`; RunEnded, also for a run that is being cancelled or
    is quarantined.
    """
    _require_control(run, actor)
    reason = _text(reason, "reason", MAX_REASON)
    with transaction.atomic():
        engine.pause(run=run, actor=actor, reason=reason)
    return readable(run, actor)


def resume(*, run: UUID, actor: Actor) -> queries.RunDetail:
    """Let a run go on that is held up. Raises as pause does, and changes nothing of one that goes on."""
    _require_control(run, actor)
    with transaction.atomic():
        engine.resume(run=run, actor=actor)
    return readable(run, actor)


def write(*, run: UUID, text: object, actor: Actor) -> queries.RunDetail:
    """Write to a run: its agent hears it when its model is asked next.

    Raises, in this order: NoSuchRun; Forbidden (`not_eligible`); InvalidInput naming `text`; RunEnded, also
    for a run that is being cancelled or is quarantined; TooManyUnheard.
    """
    _require_control(run, actor, "write to")
    if isinstance(text, str) and not text.strip():
        raise InvalidInput("text", "is required")
    text = _text(text, "text", MAX_MESSAGE)
    with transaction.atomic():
        engine.write(run=run, actor=actor, text=text)
    return readable(run, actor)


def _require_control(run: UUID, actor: Actor, what: str = "hold up") -> None:
    found = readable(run, actor)
    if not ports.access().may_control(actor, found.requester):
        raise Forbidden("not_eligible", f"{actor.person} may not {what} runs of {found.requester}.")


def export(*, run: UUID, actor: Actor) -> str:
    """Hand a run over: end it here and return the signed file of it; one that was exported gives it again.

    Raises, in this order: NoSuchRun; Forbidden (`not_eligible`); RunEnded; NotAtRest; TooLarge; Tampered.
    """
    readable(run, actor)
    if not ports.access().reads_continuations(actor):
        raise Forbidden("not_eligible", "Exporting runs is for admins.")
    with transaction.atomic():
        return engine.export(run=run, actor=actor)


def take_over(*, data: bytes, actor: Actor) -> UUID:
    """Take over a run that another installation exported: `data` is its file. Returns its id.

    Raises, in this order: Forbidden; NotImportable, which says in one line why; RunKnown.
    """
    ports.access().require(actor, "admin")
    try:
        text = data.decode()
    except UnicodeDecodeError as exc:
        raise NotImportable("it is not UTF-8") from exc
    with transaction.atomic():
        run = engine.take_over(text=text, actor=actor)
        agent = readable(run, actor)
        try:
            ports.catalogue().check_input(agent.agent, agent.input)
        except UnknownAgent as exc:
            raise NotImportable(f"there is no agent {agent.agent!r} here") from exc
        except InvalidInput:
            pass  # it was started with that input, and goes on with it
    return run


def readable(run: UUID, actor: Actor) -> queries.RunDetail:
    """A run as this actor may read it. Raises NoSuchRun."""
    found = queries.run_detail(ports.access().readable_runs(actor), run)
    if found is None:
        raise NoSuchRun
    return found


def readable_whole(run: UUID, actor: Actor) -> queries.RunDetail:
    """A run whose continuations this actor may read: all that is stored of it.

    Raises, in this order: Forbidden (`scope`); NoSuchRun; Forbidden (`not_eligible`).
    """
    access = ports.access()
    access.require(actor, "runs:read")
    found = readable(run, actor)
    if not access.reads_continuations(actor):
        raise Forbidden("not_eligible", "Continuations are for admins.")
    return found


def _check_key(key: str | None) -> None:
    if key is None:
        return
    if not 1 <= len(key) <= MAX_KEY:
        raise InvalidInput("business_key", f"must have 1 to {MAX_KEY} characters")
    if "\x00" in key:
        raise InvalidInput("business_key", "contains a character that is not text")


def _checked(reason: object) -> str:
    if isinstance(reason, str) and not reason.strip():
        raise InvalidInput("reason", "is required to cancel")
    return _text(reason, "reason", MAX_REASON)


def _text(text: object, field: str, longest: int) -> str:
    """The text verbatim: what the audit keeps is what was written."""
    if not isinstance(text, str):
        raise InvalidInput(field, "must be text")
    if len(text) > longest:
        raise InvalidInput(field, f"must have at most {longest} characters")
    try:
        require_json(text)
    except NotJson as exc:
        raise InvalidInput(field, "contains a character that is not text") from exc
    return text
