"""Counts votes against the stages of a request. Pure.

A stage counts distinct people; one person counts once in a request. The stages are in sequence: a vote counts for the
first stage that lacks people. A denial is no vote: one person who may decide denies the request.
"""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from approvals.rules.policy import Stage

Voter = tuple[str, Collection[str]]  # a person and their groups


def count_votes(stages: Sequence[Stage], votes: Mapping[str, int]) -> list[int]:
    """Return the gap of votes in each stage. `votes` has the stage of each person's vote."""
    counts = [0] * len(stages)
    for stage in votes.values():
        if 0 <= stage < len(stages):
            counts[stage] += 1
    return counts


def find_current_stage(stages: Sequence[Stage], votes: Mapping[str, int]) -> int | None:
    """Return the index of the first stage that lacks people; None if the request is approved."""
    for index, count in enumerate(count_votes(stages, votes)):
        if count < stages[index].quorum:
            return index
    return None


def count_missing(stages: Sequence[Stage], votes: Mapping[str, int]) -> int:
    """Return how many people must still approve."""
    pairs = zip(stages, count_votes(stages, votes), strict=True)
    return sum(max(0, stage.quorum - count) for stage, count in pairs)


def can_complete(
    stages: Sequence[Stage],
    votes: Mapping[str, int],
    people: Mapping[str, Collection[str]],
    stand_ins: Mapping[str, Sequence[Voter]] = MappingProxyType({}),
) -> bool:
    """Tell whether these people, with their groups, suffice for the missing votes. Each of them votes at most once.

    `stand_ins` are the absent people in whose place a person may vote instead of for themselves.

    This is a matching of people to gaps, found by augmenting paths: a person in two stages is used where needed.
    """
    gaps = [
        index
        for index, count in enumerate(count_votes(stages, votes))
        for _ in range(max(0, stages[index].quorum - count))
    ]
    free = {
        name: ((name, groups), *stand_ins.get(name, ()))
        for name, groups in people.items()
        if name not in votes
    }
    gap_of: dict[str, int] = {}  # the gap that a person fills
    return all(_fill(gap, gaps, stages, free, gap_of, set()) for gap in range(len(gaps)))


def _fill(
    gap: int,
    gaps: Sequence[int],
    stages: Sequence[Stage],
    free: Mapping[str, Sequence[Voter]],
    gap_of: dict[str, int],
    visited: set[str],
) -> bool:
    """Find a person for the gap, and another gap for a person who fills one if needed."""
    stage = stages[gaps[gap]]
    for name, voters in free.items():
        if name in visited or not any(stage.is_eligible(*voter) for voter in voters):
            continue
        visited.add(name)
        if name not in gap_of or _fill(gap_of[name], gaps, stages, free, gap_of, visited):
            gap_of[name] = gap
            return True
    return False
