"""Refuses figures that are older than the engine: `python -m tests.docs.figures`, a part of `make check`.

The figures of `docs/explanation/performance.md` may be a week older than the last commit that changed the engine. A
clone without its whole history cannot tell, and is not checked.
"""

import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta

from config.env.environment import ROOT
from tests.docs.words import say

PAGE = "docs/explanation/performance.md"
ENGINE = (
    *("runtime", ":!runtime/web", ":!runtime/management", ":!runtime/migrations"),
    *("agents/effect_handler.py", "agents/llm"),
    *(
        "approvals/port/adapter.py",
        "approvals/port/verifier.py",
        "approvals/decisions",
        "approvals/requests",
    ),
    *("config/celery.py", "config/broker"),
)
MOST = timedelta(days=7)
# The date of all figures, or that of the engine's own if they were measured alone.
_DATE = re.compile(r"^(?:- |Measured apart: )(\d{4}-\d\d-\d\d \d\d:\d\d) UTC", re.MULTILINE)


def main() -> int:
    """Print the problem of the page, or why nothing was checked."""
    if git("rev-parse", "--is-shallow-repository") != "false":
        say(f"{PAGE} is not checked: this folder has no whole history")
        return 0
    changed = datetime.fromisoformat(git("log", "-1", "--format=%cI", "--", *ENGINE))
    problem = problem_of((ROOT / PAGE).read_text(encoding="utf-8"), changed)
    if problem:
        say(f"{PAGE}: {problem}")
    return int(bool(problem))


def problem_of(page: str, changed: datetime) -> str:
    """Return the problem of figures whose engine was last changed at this time; empty without one."""
    head, title, rest = page.partition("\n## The engine")
    dates = _DATE.findall(rest.partition("\n## ")[0]) or _DATE.findall(head)
    if not (title and dates):
        return "it has no section about the engine, or no date"
    measured = datetime.fromisoformat(dates[-1]).replace(tzinfo=UTC)
    if changed - measured <= MOST:
        return ""
    return (
        f"its figures are of {measured:%Y-%m-%d}, and the engine was changed on {changed:%Y-%m-%d}:"
        " run `make bench` on an idle machine"
    )


def git(*words: str) -> str:
    """Return the answer of git, empty without git or a repository."""
    try:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
