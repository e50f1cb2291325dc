"""The mutation score of the pure core and of the policy: how many of their mutants the tests see.

MUTANTS says how many are tried (400; `all` for all of them), MUTANTS_SEED which ones. Each meets the tests
of the core and the policy with twenty of their walks, the tests of what its module is for, then all walks.
"""

import os
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from threading import Lock

from config.env.environment import ROOT
from tests.mutants import trials
from tests.mutants.equivalent import EQUIVALENT
from tests.mutants.operators import Mutant, mutants

GOAL = 0.95
LANES = len(os.sched_getaffinity(0))
HISTORIES = "tests/core/run/test_histories.py"
NEEDS_ALL_WALKS = "test_the_walks_take_every_event_type_and_table_key"
# Without Django, which takes longer to set up than these tests do.
PURE = ("-c", "tests/mutants/pure.ini", "--rootdir=.", "--noconftest", "-p", "no:django")
BESIDE_THE_CORE = (
    "tests/stored/test_golden.py",
    "tests/upkeep/test_retention_rules.py",
    "tests/approvals/test_policy.py",
    "tests/approvals/policies/test_judge.py",
    "tests/reads/test_lookalikes.py",
)
FEW, ALL = "20", "2000"  # walks

Words = tuple[str, ...]  # of a command line

# Where a part of the core is for something beside it, the tests of that; with all of Django and Postgres.
DEEPER = {
    "codec": ("tests/stored",),
    "upcasters": ("tests/stored",),
    "frames": ("tests/execution/test_long_runs.py",),
    "forks": ("tests/control/test_copies.py",),
    "export_file": ("tests/control/test_copies.py", "tests/security/test_forged_exports.py"),
    "retention_rules": ("tests/upkeep/test_retention_rules.py",),
    "accounting": ("tests/execution/admission/test_gates.py",),
    "blobs": ("tests/execution/test_contents.py", "tests/control/test_thread_memory.py"),
    "json_values": ("tests/web/runs/test_redaction.py",),
    "texts": ("tests/web/test_display.py",),
    "verdicts": (
        *("tests/web/requests/test_decisions.py", "tests/web/requests/test_inquiries.py"),
        "tests/approvals/decisions/test_decide.py",
    ),
    "signed_gzip": ("tests/store/test_sealed_files.py",),
}
POSTGRES = Lock()  # there is one test database


def everything() -> list[Mutant]:
    others = (ROOT / "runtime/upkeep/retention_rules.py", ROOT / "approvals/rules/policy.py")
    files = [*sorted((ROOT / "runtime/core").rglob("*.py")), *others]
    return [one for file in files for one in mutants(_path(file), file.read_text())]


def chosen(found: list[Mutant], count: str, seed: int) -> list[Mutant]:
    """Choose so many mutants, the same ones for the same seed."""
    if count == "all" or int(count) >= len(found):
        return found
    return random.Random(seed).sample(found, int(count))


def main() -> bool:
    """Try the mutants, list the survivors and the score, and tell whether it reaches the goal."""
    count, seed = os.environ.get("MUTANTS", "400"), int(os.environ.get("MUTANTS_SEED", "1"))
    every = everything()
    found = [one for one in every if not equivalences_of(one)]
    tried = chosen(found, count, seed)
    began_at = time.monotonic()
    with ThreadPoolExecutor(LANES) as lanes:
        living = sum(lanes.map(_living, (tried[lane::LANES] for lane in range(LANES))))
    score = 1 - living / len(tried)
    _say(
        f"FIGURES mutants of the core and policy: {len(tried)} of {len(found)} tried, seed {seed},"
        f" {len(tried) - living} red, {living} live,"
        f" {len(every) - len(found)} equivalent ones left out,"
        f" score {score:.1%}, {time.monotonic() - began_at:.0f} s"
    )
    return score >= GOAL


def _living(tried: list[Mutant]) -> int:
    """Try them one after the other in a copy of their own. Return how many live."""
    living = 0
    with trials.copy() as folder:
        for one in tried:
            text = one.changed((ROOT / one.file).read_text())
            with trials.changed(folder, one.file, text):
                if _lives(folder, one):
                    _say(f"lives: {one.name}")
                    living += 1
    return living


def _lives(folder: Path, mutant: Mutant) -> bool:
    name = Path(mutant.file).stem
    if not _pass(folder, likeliest_first(name), PURE, within=120.0):
        return False
    if name in DEEPER:
        with POSTGRES:
            if not _pass(folder, DEEPER[name], (), within=300.0):
                return False
    is_walked = "/core/run/" in mutant.file
    return not is_walked or _pass(folder, (HISTORIES,), PURE, within=600.0, walks=ALL)


def likeliest_first(name: str) -> Words:
    """Return all files of tests: recorded histories, small facts, the reducer's, the module's own, then the others."""
    core = [_path(file) for file in sorted((ROOT / "tests/core").rglob("test_*.py"))]
    likeliest = ("test_golden", "test_facts", "test_reducer", f"test_{name}")
    return tuple(
        sorted([*core, *BESIDE_THE_CORE], key=lambda file: Path(file).stem not in likeliest)
    )


def _pass(folder: Path, files: Words, options: Words, *, within: float, walks: str = FEW) -> bool:
    if folder != ROOT:
        assert _pass_as_they_are(tuple(sorted(files)), options, within, walks)
    few = (f"--deselect={HISTORIES}::{NEEDS_ALL_WALKS}",) if walks == FEW else ()
    words = (*options, *few, *files)
    return trials.outcome(folder, words, within=within, SIGNOFF_WALKS=walks)[0] == 0


@cache
def _pass_as_they_are(files: Words, options: Words, within: float, walks: str) -> bool:
    return _pass(ROOT, files, options, within=within, walks=walks)


def equivalences_of(mutant: Mutant) -> set[tuple[str, str, str]]:
    """Return the rows of the list of equivalent mutants that are about this one."""
    like = (Path(mutant.file).stem, mutant.before)
    return {row for row in EQUIVALENT if row[:2] == like and row[2] in mutant.text}


def _path(file: Path) -> str:
    return str(file.relative_to(ROOT))


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
