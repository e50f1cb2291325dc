"""The hand-made mutants, then those of the core (make mutants).

MUTANT is a part of the lines of hand-made ones to try, a file for example. MUTANTS says how many of the core's are
tried (400, or `all`), MUTANTS_SEED which ones.
"""

import argparse
import os
from pathlib import Path
from tempfile import TemporaryDirectory

from config.local.processes import users
from tests.mutants import core, tried
from tests.support import embedded


def main() -> int:
    kinds = {"hand": tried.main, "core": core.main}
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("kind", nargs="?", choices=list(kinds), help="(default: both)")
    only = parser.parse_args().kind
    wanted = [only] if only else list(kinds)
    with TemporaryDirectory(prefix="abeyance-mutants-") as name:
        folder, servers = Path(name), Path(name) / "servers"
        folder.chmod(0o755)
        servers.mkdir(mode=0o700)
        users.chown(users.unprivileged(), [servers])
        with embedded.database(folder, servers) as url:
            os.environ["DATABASE_URL"] = url
            reached = [kinds[kind]() for kind in wanted]  # the second also if the first is not
    return 0 if all(reached) else 1


if __name__ == "__main__":
    raise SystemExit(main())
