"""Counts the votes of several people on one request, where the policy demands them.

A vote and the decision that it completes are one transaction, which holds the lock of the run's row. So of two last
votes one decides and the other finds the request decided. Votes are validated again at each vote: the vote of a person
who was disabled, lost the right or steered the run since no longer counts, and a person must vote in its place.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from django.db import IntegrityError, transaction

from approvals import audit, clock
from approvals.decisions import commit
from approvals.errors import AlreadyVoted, TamperedWith
from approvals.models import Request, Vote
from approvals.permissions import principals, request_rules
from approvals.permissions.principals import Principal
from approvals.permissions.scopes import Scope
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
        place = _place(looked, _stages(row, demands, looked.at), counted, actor)
        if not isinstance(place, Place):
            return place
        counted += (_cast(looked, decision, actor, place),)
        people = {one.person: one.stage for one in counted}
        _note(row, demands, counted, looked.at)
        if tally.current(demands.stages, people) is None:
            row.effective_at, row.decided_for = effective_at, place.absent
            latest = replace(looked, last=audit.last_of(row.run_id))
            commit.close(latest, decision, actor, [one.digest for one in counted])
        else:
            notify(row.run_id, inbox=True, hint=False)
    return None


def lost(
    cast: Cast, row: Request, origin: Collection[str] = (), voters: Collection[str] = ()
) -> str | None:
    """Say why a vote does not count; None if it does. `origin` is as in Approvals.verify_approval.

    `voters` are the people whose votes count beside it.
    """
    person = Actor(person=cast.person)
    principal = principals.from_rights(person, cast.held, cast.at, past=True)
    denial = request_rules.denial_for(principal, row, cast.absent, origin, cast.at)
    if denial is not None:
        return denial.detail
    demands = votes.demands(row)
    if demands is None or principal is None or not 0 <= cast.stage < len(demands.stages):
        return "the vote is for no stage of the request"
    stage = _stages(row, demands, cast.at)[cast.stage]
    voter = next((one for one in principal.stands_for if one.person == cast.absent), principal)
    if not stage.admits(voter.person, voter.groups):
        return f"{cast.place} is not named in this stage"
    dependent = request_rules.name_dependent(principal, set(voters) - {cast.person})
    return _one_hand(cast.person, dependent) if dependent else None


def is_for_absent(row: Request, principal: Principal | None) -> bool:
    """Tell whether the principal has a vote in the place of another: they withdraw it also after the absence."""
    return (
        principal is not None
        and Scope.APPROVALS_DECIDE in principal.scopes
        and row.status == Request.Status.PENDING
        and Vote.objects.filter(request=row, person=principal.person)
        .exclude(for_person=None)
        .exists()
    )


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
        _note(row, _demands(row), _casts(row), clock.now(), save=False)
    return bool(gone)


def note_open(row: Request, at: datetime) -> None:
    """Keep in the row who may vote at this time, for the lists. The caller locked the run."""
    _note(row, _demands(row), _casts(row), at)


def _stages(row: Request, demands: Demands, at: datetime) -> tuple[Stage, ...]:
    """Return the stages with the people who may vote at this time."""
    return escalation.stages(demands, row.expires_at, at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The stage of a vote, and the absent person in whose place it counts, None for the voter's own."""

    stage: int
    absent: str | None = None


def _place(
    looked: commit.Loaded, stages: Sequence[Stage], counted: Sequence[Cast], actor: Actor
) -> Place | AlreadyVoted | Forbidden:
    """Return where the actor's vote counts, or why they may not vote. Each person counts once, also by a deputy."""
    principal = looked.principal
    taken = {one.place: one.person for one in counted}
    people = {one.person: one.stage for one in counted}
    if actor.person in {*people, *taken}:
        return AlreadyVoted(actor.person, taken.get(actor.person))
    if dependent := principal and request_rules.name_dependent(principal, {*people, *taken}):
        return Forbidden("not_eligible", _one_hand(actor.person, dependent))
    stage = tally.current(stages, people)
    assert stage is not None  # the request would be decided
    open_now = stages[stage]
    if principal is not None and open_now.admits(principal.person, principal.groups):
        return Place(stage=stage)
    stands = request_rules.stand_in(principal, looked.request, at=looked.at)
    absent = [one.person for one in stands if open_now.admits(one.person, one.groups)]
    for name in absent:
        if name not in {*people, *taken}:
            return Place(stage=stage, absent=name)
    if absent:
        return AlreadyVoted(absent[0], taken.get(absent[0]))
    return Forbidden(
        "not_eligible",
        f"Other people must approve first: stage {stage + 1} of {len(stages)} is open, and"
        f" {actor.person} may vote in a later one.",
    )


def _one_hand(person: str, voters: Collection[str]) -> str:
    return (
        f"{person} and {', '.join(sorted(voters))}, who approved it, count as one person: one gave the other the right"
        " to decide or the password, and no second admin confirmed it."
    )


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
        _note(row, demands, kept, at)
    return tuple(kept)


def _cast(looked: commit.Loaded, decision: Decision, actor: Actor, place: Place) -> Cast:
    """Write the vote and its audit row."""
    row = looked.request
    made = votes.make(
        row,
        person=actor.person,
        stage=place.stage,
        absent=place.absent,
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
    _audit(row, actor.person, VOTED, actor=actor, reason=decision.reason, place=place)
    return Cast(
        person=actor.person,
        absent=place.absent,
        stage=place.stage,
        reason=decision.reason,
        at=looked.at,
        digest=votes.digest_of(made.statement),
    )


def _note(
    row: Request, demands: Demands, cast: Sequence[Cast], at: datetime, *, save: bool = True
) -> None:
    """Keep in the row who voted, in whose place, and who may vote now, for the lists."""
    stages = _stages(row, demands, at)
    stage = tally.current(stages, {one.person: one.stage for one in cast})
    row.voted = [one.person for one in cast]
    row.voted_for = [one.absent for one in cast if one.absent]
    row.open_to = list(stages[stage if stage is not None else -1].keys)
    if save:
        Request.objects.filter(pk=row.pk).update(
            voted=row.voted, voted_for=row.voted_for, open_to=row.open_to
        )


def _casts(row: Request) -> list[Cast]:
    """Return the votes as stored, without their digests."""
    return [
        Cast(
            person=vote.person,
            absent=vote.for_person,
            stage=vote.stage,
            reason=vote.reason,
            at=vote.at,
            digest="",
        )
        for vote in Vote.objects.filter(request=row).order_by("at", "person")
    ]


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
    place: Place | None = None,
) -> None:
    audit.append(
        run=row.run_id,
        actor=actor,
        act=act,
        subject=votes.subject(row, person),
        detail={
            "digest": row.request_digest,
            "reason": reason,
            **({} if place is None else {"stage": str(place.stage + 1), "for": place.absent}),
        },
    )
