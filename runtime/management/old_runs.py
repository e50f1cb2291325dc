"""Writes which runs are old enough by the rules of the operator."""

from django.core.management.base import OutputWrapper

from runtime.upkeep.old_runs import OldRuns


def write_groups(stdout: OutputWrapper, groups: list[OldRuns]) -> int:
    """Write a line for each group, and return how many runs there are."""
    for group in groups:
        stdout.write(
            f"{group.agent} {group.status}: {group.runs} runs older than {group.days} days,"
            f" the first of {group.earliest:%Y-%m-%d}"
        )
    return sum(group.runs for group in groups)
