"""The figures of these tests: actions, counts and outcomes."""

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.system.fault_injection.harness.experiment import Death


def of_points(
    deaths: "Sequence[Death]", wrong: Mapping[str, Sequence[str]], seconds: float
) -> None:
    """A line for each death, then the sum."""
    say(f"\n{'point':32} {'score':18} {'recovered':>9} {'finished':>9}  in doubt")
    for death in sorted(deaths, key=lambda one: one.case.point):
        say(
            f"{death.case.point:32} {death.case.score:18} {death.recovered or 0:8.1f}s"
            f" {death.finished or 0:8.1f}s  {'yes' if death.under_way else 'no'}"
        )
    summary(
        "kill points",
        runs=len(deaths),
        kills=len(deaths),
        wrong=[problem for found in wrong.values() for problem in found],
        in_doubt_gates=sum(death.under_way for death in deaths),
        seconds=seconds,
        points=len({death.case.point for death in deaths}),
    )


def summary(
    what: str,
    *,
    runs: int,
    kills: int,
    wrong: Sequence[str],
    in_doubt_gates: int,
    seconds: float,
    points: int = 0,
) -> None:
    """One line: an action, its count and its outcome."""
    lost = sum(problem.startswith("lost") for problem in wrong)
    repeated = sum(problem.startswith("repeated") for problem in wrong)
    of = f"{points} points, " if points else ""
    say(
        f"FIGURES {what}: {of}{runs} runs, {kills} kills, {lost} lost, {repeated} repeated,"
        f" {in_doubt_gates} calls in doubt, {len(wrong) - lost - repeated} other problems, {seconds:.0f} s"
    )


def resumed(since: str, seconds: Sequence[float]) -> None:
    """Report the seconds `since` an event until the entry that consumed the decision."""
    if not seconds:
        return
    p50, p99, longest = (percentile(seconds, share) for share in (0.5, 0.99, 1))
    say(
        f"FIGURES resume since {since}: {len(seconds)} decisions,"
        f" p50 {p50:.1f} s, p99 {p99:.1f} s, longest {longest:.1f} s"
    )


def percentile(seconds: Sequence[float], share: float) -> float:
    """Return the time within which this share of them had finished. There must be at least one."""
    times = sorted(seconds)
    return times[min(len(times) - 1, int(len(times) * share))]


def say(text: str) -> None:
    """Seen with `pytest -s`, and with a test that fails."""
    sys.stdout.write(text + "\n")
