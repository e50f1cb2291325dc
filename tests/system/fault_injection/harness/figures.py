"""The figures of these tests: actions, counts and outcomes."""

import sys
import time
from collections.abc import Sequence


def summary(
    what: str, wrong: Sequence[str], began_at: float, *, runs: int, kills: int, in_doubt: int
) -> None:
    lost = sum(problem.startswith("lost") for problem in wrong)
    repeated = sum(problem.startswith("repeated") for problem in wrong)
    say(
        f"FIGURES {what}: {runs} runs, {kills} kills, {lost} lost, {repeated} repeated,"
        f" {in_doubt} calls in doubt, {len(wrong) - lost - repeated} other problems,"
        f" {time.monotonic() - began_at:.0f} s"
    )


def resumed(since: str, seconds: Sequence[float]) -> None:
    """Report the seconds `since` an event until the entry that consumed the decision."""
    _spread(f"resume since {since}", "decisions", seconds)


def progress(what: str, seconds: Sequence[float]) -> None:
    """Report the seconds from the last heartbeat of a lost worker until each of its runs went on."""
    _spread(f"progress after the loss of a worker, {what}", "losses", seconds)


def _spread(what: str, of: str, seconds: Sequence[float]) -> None:
    if not seconds:
        return
    times = sorted(seconds)
    p50, p99, longest = (times[int((len(times) - 1) * share)] for share in (0.5, 0.99, 1))
    say(
        f"FIGURES {what}: {len(times)} {of},"
        f" p50 {p50:.1f} s, p99 {p99:.1f} s, longest {longest:.1f} s"
    )


def say(text: str) -> None:
    """Seen with `pytest -s`, and with a test that fails."""
    sys.stdout.write(text + "\n")
