"""A Postgres for all trials together, as the tests start one for themselves."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from config.local.processes import users
from config.local.servers import binaries
from config.local.servers import postgres as local


@contextmanager
def postgres() -> Iterator[None]:
    """DATABASE_URL names an embedded server inside the block, unless one was given."""
    if os.environ.get("DATABASE_URL"):
        yield
        return
    folder = Path(tempfile.mkdtemp(prefix="abeyance-mutants-"))
    account = users.unprivileged()
    folder.chmod(0o755)
    (folder / "servers").mkdir(mode=0o700)
    users.chown(account, [folder / "servers"])
    cluster = local.Cluster(
        programs=binaries.postgres(account, folder / "programs"),
        data=folder / "servers" / "postgres",
        socket=folder / "servers",
        account=account,
        password="for tests only",
    )
    local.initialise(cluster)
    with (folder / "postgres.log").open("ab") as log:
        process = local.start(cluster, log, local.FAST)
    os.environ |= {"DATABASE_URL": cluster.url(), "ABEYANCE_UNSAFE_POSTGRES": "yes"}
    try:
        yield
    finally:
        del os.environ["DATABASE_URL"]
        local.stop(process)
        shutil.rmtree(folder, ignore_errors=True)
