"""Counts the votes of several people on one request, where the policy demands them.

A vote and the decision that it completes are one transaction, which holds the lock of the run's row. So of two last
votes one decides and the other finds the request decided. Votes are validated again at each vote: the vote of a person
who was disabled, lost the right or steered the run since no longer counts, and a person must vote in its place.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from django.db import IntegrityError, transaction

from approvals import clock
from approvals.decisions import commit
from approvals.errors import AlreadyVoted, TamperedWith
from approvals.models import Approval, Vote
from approvals.rights import approval_rights, principals
from approvals.rules import policy, tally
from approvals.rules.policy import Demands, Stage
from approvals.signed import audit, votes
from approvals.signed.votes import VOID, VOTED, WITHDRAWN, Cast
from runtime.control.user_actions import notify
from runtime.core.values.enums import Decision
from runtime.errors import Forbidden, GateNotOpen
from runtime.ports.access import Actor
from runtime.ports.approvals import NotConfirmed


def check_step_up(demands: Demands, actor: Actor, at: datetime) -> None:
    """Raise Forbidden if the policy demands a fresh second factor that the actor did not give in the browser."""
    if not demands.accept(actor.authenticated, at):
        raise Forbidden(
            "step_up",
            "The policy asks for a second factor of the last 5 minutes: confirm on the page of the request.",
        )


def vote(
    loaded: commit.LoadedApproval, decision: Decision, actor: Actor, effective_at: datetime | None
) -> AlreadyVoted | Forbidden | None:
    """Record the vote, and the decision if it completes the quorum of every stage.

    Return the error if this person voted before, or may not vote in the present stage: the caller raises it once the
    deletion of votes that no longer count is committed. Raises TamperedWith, and GateNotOpen, with nothing written, if
    another action on the run came in between.
    """
    approval, demands = loaded.approval, _require_demands(loaded.approval)
    with transaction.atomic():
        audit.lock_runs(approval.run_id)
        if audit.read_chain_end(approval.run_id) != loaded.last:
            raise GateNotOpen
        try:
            cast = votes.read(approval, loaded.votes)
        except NotConfirmed as exc:
            raise TamperedWith(str(exc)) from exc
        counted = _keep_valid_votes(approval, demands, cast, loaded.at)
        slot = _find_slot(loaded, _compute_stages(approval, demands, loaded.at), counted, actor)
        if not isinstance(slot, VoteSlot):
            return slot
        counted += (_cast(loaded, decision, actor, slot),)
        people = {vote.person: vote.stage for vote in counted}
        _note(approval, demands, counted, loaded.at)
        if tally.find_current_stage(demands.stages, people) is None:
            approval.effective_at, approval.decided_for = effective_at, slot.absent
            latest = replace(loaded, last=audit.read_chain_end(approval.run_id))
            commit.close(latest, decision, actor, [vote.digest for vote in counted])
        else:
            notify(approval.run_id, inbox=True, hint=False)
    return None


def find_vote_fault(
    cast: Cast, approval: Approval, origin: Collection[str] = (), voters: Collection[str] = ()
) -> str | None:
    """Say why a vote does not count; None if it does. `origin` is as in Approvals.verify_approval.

    `voters` are the people whose votes count beside it.
    """
    person = Actor(person=cast.person)
    principal = principals.restore_principal(person, cast.rights, cast.at, past=True)
    denial = approval_rights.find_denial_for(principal, approval, cast.absent, origin, cast.at)
    if denial is not None:
        return denial.detail
    demands = votes.read_demands(approval)
    if demands is None or principal is None or not 0 <= cast.stage < len(demands.stages):
        return "the vote is for no stage of the request"
    stage = _compute_stages(approval, demands, cast.at)[cast.stage]
    voter = next((away for away in principal.stands_for if away.person == cast.absent), principal)
    if not stage.is_eligible(voter.person, voter.groups):
        return f"{cast.owner} is not named in this stage"
    dependent = approval_rights.name_dependent(principal, set(voters) - {cast.person})
    return _explain_one_hand(cast.person, dependent) if dependent else None


def is_for_absent(approval: Approval, principal: principals.Principal | None) -> bool:
    """Tell whether the principal has a vote in the place of another: they withdraw it also after the absence."""
    return (
        principal is not None
        and principals.Scope.APPROVALS_DECIDE in principal.scopes
        and approval.status == Approval.Status.PENDING
        and Vote.objects.filter(approval=approval, person=principal.person)
        .exclude(for_person=None)
        .exists()
    )


def withdraw(approval: Approval, actor: Actor) -> bool:
    """Withdraw the actor's vote on a pending request. Return False if they have none. The caller locked the run."""
    if approval.status != Approval.Status.PENDING or not take_back(approval, actor):
        return False
    approval.save()
    return True


def take_back(approval: Approval, actor: Actor) -> bool:
    """Delete the actor's vote, with an audit row, and return whether there was one. The caller saves the row."""
    deleted, _ = Vote.objects.filter(approval=approval, person=actor.person).delete()
    if deleted:
        _audit(approval, actor.person, WITHDRAWN, actor=actor)
        _note(
            approval,
            _require_demands(approval),
            _read_casts(approval),
            clock.read_time(),
            save=False,
        )
    return bool(deleted)


def note_open(approval: Approval, at: datetime) -> None:
    """Keep in the row who may vote at this time, for the lists. The caller locked the run."""
    _note(approval, _require_demands(approval), _read_casts(approval), at)


def _compute_stages(approval: Approval, demands: Demands, at: datetime) -> tuple[Stage, ...]:
    """Return the stages with the people who may vote at this time."""
    return policy.compute_stages(demands, approval.opened_until, at)


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteSlot:
    """The stage of a vote, and the absent person in whose place it counts, None for the voter's own."""

    stage: int
    absent: str | None = None


def _find_slot(
    loaded: commit.LoadedApproval, stages: Sequence[Stage], counted: Sequence[Cast], actor: Actor
) -> VoteSlot | AlreadyVoted | Forbidden:
    """Return where the actor's vote counts, or why they may not vote. Each person counts once, also by a deputy."""
    principal = loaded.principal
    voters_by_owner = {vote.owner: vote.person for vote in counted}
    people = {vote.person: vote.stage for vote in counted}
    if actor.person in {*people, *voters_by_owner}:
        return AlreadyVoted(actor.person, voters_by_owner.get(actor.person))
    if dependent := principal and approval_rights.name_dependent(
        principal, {*people, *voters_by_owner}
    ):
        return Forbidden("not_eligible", _explain_one_hand(actor.person, dependent))
    stage = tally.find_current_stage(stages, people)
    assert stage is not None  # the request would be decided
    open_now = stages[stage]
    if principal is not None and open_now.is_eligible(principal.person, principal.groups):
        return VoteSlot(stage=stage)
    absent_people = approval_rights.stand_in(principal, loaded.approval, at=loaded.at)
    absent = [
        away.person for away in absent_people if open_now.is_eligible(away.person, away.groups)
    ]
    for name in absent:
        if name not in {*people, *voters_by_owner}:
            return VoteSlot(stage=stage, absent=name)
    if absent:
        return AlreadyVoted(absent[0], voters_by_owner.get(absent[0]))
    return Forbidden(
        "not_eligible",
        f"Other people must approve first: stage {stage + 1} of {len(stages)} is open, and"
        f" {actor.person} may vote in a later one.",
    )


def _explain_one_hand(person: str, voters: Collection[str]) -> str:
    return (
        f"{person} and {', '.join(sorted(voters))}, who approved it, count as one person: one gave the other the right"
        " to decide or the password, and no second admin confirmed it."
    )


def _keep_valid_votes(
    approval: Approval, demands: Demands, cast: Sequence[Cast], at: datetime
) -> tuple[Cast, ...]:
    """Delete the votes that no longer count, and return the others."""
    valid = list[Cast]()
    for vote in cast:
        reason = find_vote_fault(vote, approval)
        if reason is None:
            valid.append(vote)
            continue
        Vote.objects.filter(approval=approval, person=vote.person).delete()
        _audit(approval, vote.person, VOID, reason=reason)
    if len(valid) < len(cast):
        _note(approval, demands, valid, at)
    return tuple(valid)


def _cast(loaded: commit.LoadedApproval, decision: Decision, actor: Actor, slot: VoteSlot) -> Cast:
    """Write the vote and its audit row."""
    approval = loaded.approval
    vote = votes.make(
        approval,
        person=actor.person,
        stage=slot.stage,
        absent=slot.absent,
        authenticated=actor.authenticated if _require_demands(approval).step_up else None,
        verdict=decision.verdict,
        reason=decision.reason,
        at=loaded.at,
        withdrawn=audit.count(
            approval.run_id, votes.name_vote_subject(approval, actor.person), besides=VOTED
        ),
    )
    try:
        with transaction.atomic():
            vote.save(force_insert=True)
    except IntegrityError as exc:
        raise AlreadyVoted(actor.person) from exc
    _audit(approval, actor.person, VOTED, actor=actor, reason=decision.reason, slot=slot)
    return Cast(
        person=actor.person,
        absent=slot.absent,
        stage=slot.stage,
        reason=decision.reason,
        at=loaded.at,
        digest=votes.compute_digest(vote),
    )


def _note(
    approval: Approval, demands: Demands, cast: Sequence[Cast], at: datetime, *, save: bool = True
) -> None:
    """Keep in the row who voted, in whose place, and who may vote now, for the lists."""
    stages = _compute_stages(approval, demands, at)
    stage = tally.find_current_stage(stages, {vote.person: vote.stage for vote in cast})
    approval.voted = [vote.person for vote in cast]
    approval.voted_for = [vote.absent for vote in cast if vote.absent]
    approval.open_to = list(stages[stage if stage is not None else -1].keys)
    if save:
        Approval.objects.filter(pk=approval.pk).update(
            voted=approval.voted, voted_for=approval.voted_for, open_to=approval.open_to
        )


def _read_casts(approval: Approval) -> list[Cast]:
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
        for vote in Vote.objects.filter(approval=approval).order_by("at", "person")
    ]


def _require_demands(approval: Approval) -> Demands:
    demands = votes.read_demands(approval)
    assert demands is not None  # the request has a rule
    return demands


def _audit(
    approval: Approval,
    person: str,
    act: str,
    *,
    actor: Actor | None = None,
    reason: str = "",
    slot: VoteSlot | None = None,
) -> None:
    audit.append(
        run=approval.run_id,
        actor=actor,
        act=act,
        subject=votes.name_vote_subject(approval, person),
        detail={
            "digest": approval.approval_digest,
            "reason": reason,
            **({} if slot is None else {"stage": str(slot.stage + 1), "for": slot.absent}),
        },
    )
