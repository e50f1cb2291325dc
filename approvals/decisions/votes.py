"""Counts the votes of several people on one request, where the policy demands them.

A vote and the decision that it completes are one transaction, which holds the lock of the run's row. So of two last
votes one decides and the other finds the request decided. Votes are validated again at each vote: the vote of a person
who was disabled, lost the right or steered the run since no longer counts, and a person must vote in its place.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime

from django.db import IntegrityError, transaction

from approvals import audit, clock
from approvals.decisions import commit
from approvals.errors import AlreadyVoted, TamperedWith
from approvals.models import Request, Vote
from approvals.permissions import principals, request_rules
from approvals.policies import escalation, tally
from approvals.policies.rules import Demands, Stage
from approvals.requests import votes
from approvals.requests.votes import STARTS, VOID, VOTED, WITHDRAWN, Cast
from runtime.control.transaction import notify
from runtime.core.enums import Decision, Verdict
from runtime.errors import Forbidden, GateNotOpen, InvalidInput
from runtime.ports.access import Actor
from runtime.ports.approvals import NotConfirmed


def are_needed(row: Request, decision: Decision) -> bool:
    """Tell whether this decision is a vote: it lets the call start, and the policy has a rule for the request."""
    return row.rule is not None and decision.verdict in STARTS


def needs_reason(row: Request, verdict: Verdict) -> bool:
    """Tell whether the policy requires a reason for this verdict."""
    demands = votes.demands(row)
    return demands is not None and demands.reason and verdict in STARTS


def undo_seconds(row: Request) -> float | None:
    """Return how long the policy lets a decision be undone; None if it does not say."""
    demands = votes.demands(row)
    return None if demands is None else demands.undo


def check_answer(row: Request, verdict: Verdict) -> None:
    """Raise InvalidInput for an answer where several people must agree: an answer is one person's value."""
    demands = votes.demands(row)
    if verdict is Verdict.ANSWER and demands is not None and demands.quorum > 1:
        raise InvalidInput(
            "verdict", f"cannot be answer, because {demands.quorum} people must agree"
        )


def vote(
    looked: commit.Loaded, decision: Decision, actor: Actor, effective_at: datetime | None
) -> AlreadyVoted | Forbidden | None:
    """Record the vote, and the decision if it completes the quorum of every stage.

    Return the error if this person voted before, or may not vote in the present stage: the caller raises it once the
    deletion of votes that no longer count is committed. Raises TamperedWith, and GateNotOpen, with nothing written, if
    another action on the run came in between.
    """
    row, demands = looked.request, _demands(looked.request)
    with transaction.atomic():
        audit.lock_runs(row.run_id)
        if audit.last_of(row.run_id) != looked.last:
            raise GateNotOpen
        counted = _still_valid(row, demands, _read(looked), looked.at)
        stage = _stage(_stages(row, demands, looked.at), counted, looked.principal, actor)
        if not isinstance(stage, int):
            return stage
        counted += (_cast(looked, decision, actor, stage),)
        people = {one.person: one.stage for one in counted}
        _note(row, demands, people, looked.at)
        if tally.current(demands.stages, people) is None:
            row.effective_at = effective_at
            latest = replace(looked, last=audit.last_of(row.run_id))
            commit.close(latest, decision, actor, [one.digest for one in counted])
        else:
            notify(row.run_id, inbox=True, hint=False)
    return None


def lost(cast: Cast, row: Request, origin: Collection[str] = ()) -> str | None:
    """Say why a vote no longer counts; None if it does. `origin` is as in Approvals.verify_approval."""
    person = Actor(person=cast.person)
    principal = principals.from_rights(person, cast.held, cast.at, past=True)
    denial = request_rules.denial(principal, row, origin, cast.at)
    if denial is not None:
        return denial.detail
    demands = votes.demands(row)
    if demands is None or principal is None or not 0 <= cast.stage < len(demands.stages):
        return "the vote is for no stage of the request"
    stage = _stages(row, demands, cast.at)[cast.stage]
    if not stage.admits(principal.person, principal.groups):
        return f"{cast.person} is not named in this stage"
    return None


def withdraw(row: Request, actor: Actor) -> bool:
    """Withdraw the actor's vote on a pending request. Return False if they have none. The caller locked the run."""
    if row.status != Request.Status.PENDING or not take_back(row, actor):
        return False
    row.save()
    return True


def take_back(row: Request, actor: Actor) -> bool:
    """Delete the actor's vote, with an audit row, and return whether there was one. The caller saves the row."""
    gone, _ = Vote.objects.filter(request=row, person=actor.person).delete()
    if gone:
        _audit(row, actor.person, WITHDRAWN, actor=actor)
        _note(row, _demands(row), _people(row), clock.now(), save=False)
    return bool(gone)


def note_open(row: Request, at: datetime) -> None:
    """Keep in the row who may vote at this time, for the lists. The caller locked the run."""
    _note(row, _demands(row), _people(row), at)


def _stages(row: Request, demands: Demands, at: datetime) -> tuple[Stage, ...]:
    """Return the stages with the people who may vote at this time."""
    return escalation.stages(demands, row.expires_at, at)


def _stage(
    stages: Sequence[Stage],
    counted: Sequence[Cast],
    principal: principals.Principal | None,
    actor: Actor,
) -> int | AlreadyVoted | Forbidden:
    """Return the stage in which the actor votes, or why they may not."""
    people = {one.person: one.stage for one in counted}
    if actor.person in people:
        return AlreadyVoted(actor.person)
    stage = tally.current(stages, people)
    assert stage is not None  # the request would be decided
    groups = principal.groups if principal else ()
    if not stages[stage].admits(actor.person, groups):
        return Forbidden(
            "not_eligible",
            f"Other people must approve first: stage {stage + 1} of {len(stages)} is open, and"
            f" {actor.person} may vote in a later one.",
        )
    return stage


def _read(looked: commit.Loaded) -> tuple[Cast, ...]:
    try:
        return votes.read(looked.request, looked.votes)
    except NotConfirmed as exc:
        raise TamperedWith(str(exc)) from exc


def _still_valid(
    row: Request, demands: Demands, cast: Sequence[Cast], at: datetime
) -> tuple[Cast, ...]:
    """Delete the votes that no longer count, and return the others."""
    kept = list[Cast]()
    for one in cast:
        why = lost(one, row)
        if why is None:
            kept.append(one)
            continue
        Vote.objects.filter(request=row, person=one.person).delete()
        _audit(row, one.person, VOID, reason=why)
    if len(kept) < len(cast):
        _note(row, demands, {one.person: one.stage for one in kept}, at)
    return tuple(kept)


def _cast(looked: commit.Loaded, decision: Decision, actor: Actor, stage: int) -> Cast:
    """Write the vote and its audit row."""
    row = looked.request
    made = votes.make(
        row,
        person=actor.person,
        stage=stage,
        verdict=decision.verdict,
        reason=decision.reason,
        at=looked.at,
        withdrawn=audit.count(row.run_id, votes.subject(row, actor.person), besides=VOTED),
    )
    try:
        with transaction.atomic():
            made.save(force_insert=True)
    except IntegrityError as exc:
        raise AlreadyVoted(actor.person) from exc
    _audit(row, actor.person, VOTED, actor=actor, reason=decision.reason, stage=stage)
    return Cast(
        person=actor.person,
        stage=stage,
        reason=decision.reason,
        at=looked.at,
        digest=votes.digest_of(made.statement),
    )


def _note(
    row: Request, demands: Demands, people: dict[str, int], at: datetime, *, save: bool = True
) -> None:
    """Keep in the row who voted and who may vote now, for the lists."""
    stages = _stages(row, demands, at)
    stage = tally.current(stages, people)
    row.voted = list(people)
    row.open_to = list(stages[stage if stage is not None else -1].keys)
    if save:
        Request.objects.filter(pk=row.pk).update(voted=row.voted, open_to=row.open_to)


def _people(row: Request) -> dict[str, int]:
    return dict(
        Vote.objects.filter(request=row).order_by("at", "person").values_list("person", "stage")
    )


def _demands(row: Request) -> Demands:
    found = votes.demands(row)
    assert found is not None  # the request has a rule
    return found


def _audit(
    row: Request,
    person: str,
    act: str,
    *,
    actor: Actor | None = None,
    reason: str = "",
    stage: int | None = None,
) -> None:
    audit.append(
        run=row.run_id,
        actor=actor,
        act=act,
        subject=votes.subject(row, person),
        detail={
            "digest": row.request_digest,
            "reason": reason,
            **({} if stage is None else {"stage": str(stage + 1)}),
        },
    )
