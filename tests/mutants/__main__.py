"""`python -m tests.mutants` (make mutants): the hand-made mutants, then those of the core; `hand` or `core` for one.

MUTANT is a part of the names of hand-made ones to try. MUTANTS says how many of the core's are tried (400, or
`all`), MUTANTS_SEED which ones.
"""

import sys

from tests.mutants import core, tried


def main() -> int:
    wanted = sys.argv[1:] or ["hand", "core"]
    kinds = {"hand": tried.main, "core": core.main}
    reached = [kinds[kind]() for kind in wanted]  # the second also if the first is not
    return 0 if all(reached) else 1


if __name__ == "__main__":
    raise SystemExit(main())
