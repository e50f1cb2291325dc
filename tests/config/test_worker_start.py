"""A worker that cannot do its work does not start: Celery alone would let it hold its queue and do nothing."""

import os
import subprocess

from config.env import ROOT
from config.processes import table


def test_a_worker_whose_database_is_out_of_reach_ends_with_one_line() -> None:
    (worker,) = [process for process in table() if process.name == "worker"]
    done = subprocess.run(
        worker.command,
        cwd=ROOT,
        env={
            **os.environ,
            "DATABASE_URL": "postgres://nobody@127.0.0.1:1/nothing",
            "REDIS_URL": "redis://127.0.0.1:1/0",
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode != 0
    assert done.stderr.splitlines()[-1].startswith("abeyance: Postgres at 127.0.0.1")
