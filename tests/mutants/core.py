"""The mutation score of the pure core and of the policy: how many of their mutants the tests see.

MUTANTS says how many are tried (400; `all` for all of them), MUTANTS_SEED which ones. Each meets the tests
of the core and the policy, twenty of their walks, the tests of what its module is for, then all walks.
"""

import os
import random
import sys
import time
from collections import Counter
from functools import cache

from config.env.environment import ROOT
from tests.mutants.equivalent import EQUIVALENT
from tests.mutants.operators import Mutant, mutants
from tests.mutants.trials import Seen, trial
from tests.mutants.warm import Warm, place_of, session

GOAL = 0.95
WALKS = "ABEYANCE_WALKS"
HISTORIES = "tests/core/machine/test_histories.py"
NEEDS_ALL_WALKS = "test_the_walks_take_every_event_type_and_table_key"
# Without Django, which takes longer to set up than these tests do.
PURE = ("-c", "tests/mutants/pure.ini", "--rootdir=.", "--noconftest", "-p", "no:django")
POLICY = "tests/approvals/test_policy.py"
GOLDEN, RETENTION = "tests/stored/test_golden.py", "tests/upkeep/test_retention_rules.py"
UNITS = ("tests/core", GOLDEN, RETENTION, POLICY)
FEW, ALL = "20", "2000"  # walks
FEW_WALKS = (*PURE, *UNITS, f"--deselect={HISTORIES}::{NEEDS_ALL_WALKS}")

# Where a part of the core is for something beside it, the tests of that; with all of Django and Postgres.
DEEPER = {
    "codec": ("tests/stored",),
    "upcasters": ("tests/stored",),
    "compaction": ("tests/execution/test_long_runs.py",),
    "forks": ("tests/control/test_copies.py",),
    "export_file": ("tests/control/test_copies.py", "tests/security/test_forged_exports.py"),
    "retention_rules": ("tests/upkeep/test_retention.py",),
    "active_time": ("tests/execution/admission/test_gates.py",),
}


def everything() -> list[Mutant]:
    """Every mutant there is."""
    others = (ROOT / "runtime/upkeep/retention_rules.py", ROOT / "approvals/policy.py")
    files = [*sorted((ROOT / "runtime/core").rglob("*.py")), *others]
    found: list[Mutant] = []
    for file in files:
        module = ".".join(file.relative_to(ROOT).with_suffix("").parts)
        found += mutants(module, file.read_text())
    return found


def chosen(found: list[Mutant], count: str, seed: int) -> list[Mutant]:
    """Choose so many mutants, the same ones for the same seed."""
    if count == "all" or int(count) >= len(found):
        return found
    sample = set(random.Random(seed).sample(range(len(found)), int(count)))
    return [one for number, one in enumerate(found) if number in sample]


def main() -> bool:
    """Try the mutants, list the survivors and the score, and tell whether it reaches the goal."""
    count, seed = os.environ.get("MUTANTS", "400"), int(os.environ.get("MUTANTS_SEED", "1"))
    every = everything()
    found = [one for one in every if key_of(one) not in EQUIVALENT]
    tried = chosen(found, count, seed)
    began_at = time.monotonic()
    os.environ[WALKS] = FEW
    with session(tried, FEW_WALKS, HISTORIES) as warm:
        seen = Counter(_try(number, one, warm) for number, one in enumerate(tried))
    score = 1 - seen[Seen.GREEN] / len(tried)
    _say(
        f"FIGURES mutants of the core and policy: {len(tried)} of {len(found)} tried, seed {seed},"
        f" {seen[Seen.RED]} red, {seen[Seen.LATE]} without end, {seen[Seen.GREEN]} live,"
        f" {len(every) - len(found)} equivalent ones left out,"
        f" score {score:.1%}, {time.monotonic() - began_at:.0f} s"
    )
    return score >= GOAL


def _try(number: int, mutant: Mutant, warm: Warm) -> Seen:
    seen = _of_few_walks(number, mutant, warm)
    if seen is Seen.GREEN and (deeper := DEEPER.get(_name(mutant))):
        seen = _of(mutant, deeper, within=60.0)
    if seen is Seen.GREEN and (number in warm.near or place_of(mutant) is None):
        seen = _of(mutant, (*PURE, HISTORIES), within=300.0, walks=ALL)
    if seen is Seen.GREEN:
        _say(f"lives: {mutant.name}")
    return seen


def _of_few_walks(number: int, mutant: Mutant, warm: Warm) -> Seen:
    seen = warm.trial(number, histories=False, within=12.0)
    if seen is None:
        seen = _of(mutant, (*PURE, *_likely(mutant)), within=30.0)
        return seen if seen is not Seen.GREEN else _of(mutant, FEW_WALKS, within=90.0)
    if seen is Seen.GREEN and number in warm.walked:
        seen = warm.trial(number, histories=True, within=40.0) or seen
    return seen


def _likely(mutant: Mutant) -> list[str]:
    """List the files whose tests likely see the mutant: recorded histories, small facts, the reducer's, its own."""
    names = dict.fromkeys(("facts", "reducer", _name(mutant)))
    found = [file for name in names for file in (ROOT / "tests/core").rglob(f"test_{name}.py")]
    return [GOLDEN, *(str(file.relative_to(ROOT)) for file in found)]


def _of(mutant: Mutant, tests: tuple[str, ...], *, within: float, walks: str = FEW) -> Seen:
    os.environ[WALKS] = walks
    _require_green(tests, within)
    return trial(mutant, tests, within=within)


@cache
def _require_green(tests: tuple[str, ...], within: float) -> None:
    assert trial(None, tests, within=within) is Seen.GREEN, f"{tests} fail as it is"


def _name(mutant: Mutant) -> str:
    return mutant.module.rpartition(".")[2]


def key_of(mutant: Mutant) -> tuple[str, str, str]:
    """Return the mutant's key in the list of equivalent mutants."""
    return (_name(mutant), mutant.text, mutant.before)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
