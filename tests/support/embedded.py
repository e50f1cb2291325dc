"""A Postgres for the tests themselves, unless DATABASE_URL names one."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from config.local.processes import users
from config.local.servers import binaries, postgres


@contextmanager
def database(folder: Path, servers: Path) -> Iterator[str]:
    """Its URL. The account of the servers can reach `folder`, and `servers` is its own."""
    if given := os.environ.get("DATABASE_URL"):
        yield given
        return
    account = users.unprivileged()
    cluster = postgres.Cluster(
        programs=binaries.postgres(account, folder / "programs"),
        data=servers / "postgres",
        socket=servers,
        account=account,
        password="for tests only",
    )
    postgres.initialise(cluster)
    with (folder / "postgres.log").open("ab") as log:
        process = postgres.start(cluster, log, postgres.FAST)
    os.environ["ABEYANCE_UNSAFE_POSTGRES"] = "yes"  # for the workers that tests start on it
    try:
        yield cluster.url()
    finally:
        postgres.stop(process)
