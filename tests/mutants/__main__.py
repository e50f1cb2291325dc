"""The hand-made mutants, then those of the core (make mutants), or `hand` or `core` alone.

MUTANT is a part of the lines of hand-made ones to try, a file for example. MUTANTS says how many of the core's are
tried (400, or `all`), MUTANTS_SEED which ones.
"""

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from config.local.processes import users
from tests.mutants import core, tried
from tests.support import embedded


def main() -> int:
    kinds = {"hand": tried.main, "core": core.main}
    wanted = sys.argv[1:] or list(kinds)
    with TemporaryDirectory(prefix="signoff-mutants-") as name:
        folder, servers = Path(name), Path(name) / "servers"
        folder.chmod(0o755)
        servers.mkdir(mode=0o700)
        users.chown(users.find_unprivileged_account(), [servers])
        with embedded.database(folder, servers) as url:
            os.environ["DATABASE_URL"] = url
            reached = [kinds[kind]() for kind in wanted]  # the second also if the first is not
    return 0 if all(reached) else 1


if __name__ == "__main__":
    raise SystemExit(main())
