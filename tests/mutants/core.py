"""The mutation score of the pure core and of the policy: how many of their mutants the tests see.

MUTANTS says how many are tried (400; `all` for all of them), MUTANTS_SEED which ones. Each meets the tests
of the core and the policy, forty of their walks, then all of them, and the tests of what its module is for.
"""

import os
import random
import sys
import time
from collections import Counter

from config.env import ROOT
from tests.mutants.equivalent import EQUIVALENT
from tests.mutants.operators import Mutant, mutants
from tests.mutants.servers import postgres
from tests.mutants.trials import Seen, trial

GOAL = 0.95
WALKS = "ABEYANCE_WALKS"
HISTORIES = "tests/core/test_histories.py"
NEEDS_ALL_WALKS = "test_the_walks_take_every_event_type_and_every_key_of_every_table"
# Without Django, which takes longer to set up than these tests do.
PURE = ("-c", "tests/mutants/pure.ini", "--rootdir=.", "--noconftest", "-p", "no:django")
POLICY = "tests/approvals/test_policy.py"
STAGES = (
    ("1", (*PURE, "tests/core", POLICY, f"--ignore={HISTORIES}"), 60.0),
    (
        "40",
        (*PURE, HISTORIES, f"--deselect={HISTORIES}::{NEEDS_ALL_WALKS}"),
        90.0,
    ),
    ("2000", (*PURE, HISTORIES), 300.0),
)

# Where a part of the core is for something beside it, the tests of that; with all of Django and Postgres.
DEEPER = {
    "codec": ("tests/corpus",),
    "upgrades": ("tests/corpus",),
    "compaction": ("tests/runtime/test_compaction.py",),
    "forks": ("tests/runtime/test_forks.py",),
    "portable": ("tests/runtime/test_porting.py", "tests/attacks/test_imports.py"),
    "retention": ("tests/approvals/test_retention.py",),
    "worktime": ("tests/runtime/test_budgets.py",),
}


def everything() -> list[Mutant]:
    """Every mutant there is, those that nobody can tell from the original left out."""
    files = [*sorted((ROOT / "runtime/core").glob("*.py")), ROOT / "approvals/policy.py"]
    found = []
    for file in files:
        module = ".".join(file.relative_to(ROOT).with_suffix("").parts)
        found += [one for one in mutants(module, file.read_text()) if _key(one) not in EQUIVALENT]
    return found


def chosen(found: list[Mutant], count: str, seed: int) -> list[Mutant]:
    """So many of them, the same ones for the same seed."""
    if count == "all" or int(count) >= len(found):
        return found
    sample = set(random.Random(seed).sample(range(len(found)), int(count)))
    return [one for number, one in enumerate(found) if number in sample]


def main() -> bool:
    """Try them, say which ones live and what the score is. Whether it reaches the goal."""
    count, seed = os.environ.get("MUTANTS", "400"), int(os.environ.get("MUTANTS_SEED", "1"))
    found = everything()
    tried = chosen(found, count, seed)
    began_at = time.monotonic()
    with postgres():
        for walks, tests, within in STAGES:
            os.environ[WALKS] = walks
            assert trial(None, tests, within=within) is Seen.GREEN, "the tests fail as it is"
        for deeper in DEEPER.values():
            assert trial(None, deeper, within=300.0) is Seen.GREEN, f"{deeper} fail as it is"
        seen = Counter(_try(number, one, len(tried)) for number, one in enumerate(tried, 1))
    score = 1 - seen[Seen.GREEN] / len(tried)
    _say(
        f"FIGURES mutants of the core and policy: {len(tried)} of {len(found)} tried, seed {seed},"
        f" {seen[Seen.RED]} red, {seen[Seen.LATE]} without end, {seen[Seen.GREEN]} live,"
        f" {len(EQUIVALENT)} equivalent ones left out,"
        f" score {score:.1%}, {time.monotonic() - began_at:.0f} s"
    )
    return score >= GOAL


def _try(number: int, mutant: Mutant, count: int) -> Seen:
    for walks, tests, within in STAGES:
        os.environ[WALKS] = walks
        if (seen := trial(mutant, tests, within=within)) is not Seen.GREEN:
            return seen
    deeper = DEEPER.get(mutant.module.rpartition(".")[2])
    if deeper and (seen := trial(mutant, deeper, within=300.0)) is not Seen.GREEN:
        return seen
    _say(f"lives ({number} of {count}): {mutant.name}")
    return Seen.GREEN


def _key(mutant: Mutant) -> tuple[str, str, str]:
    return (mutant.text, mutant.before, mutant.after)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
