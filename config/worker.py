"""`python -m config.worker`: one worker process.

It is Celery's own worker. Celery's command line would import an interactive shell before it starts it, which takes
8 MB of each process.
"""

import argparse
import os
import socket
import sys
from collections.abc import Sequence

from config.celery import app
from runtime import dispatch


def main(arguments: Sequence[str]) -> int:
    """Take runs until a signal says to stop; the exit code."""
    parser = argparse.ArgumentParser(prog="config.worker", description=__doc__)
    parser.add_argument(
        "--queues",
        default="resumed,runs",
        help="what runs to take, separated by commas (default: %(default)s)",
    )
    parser.add_argument(
        "--concurrency",
        type=int,
        default=256,
        help="how many runs at once, most of which wait (default: %(default)s)",
    )
    chosen = parser.parse_args(arguments)
    queues = chosen.queues.split(",")
    name = dispatch.ISOLATED if queues == [dispatch.ISOLATED] else "worker"
    worker = app.Worker(
        hostname=f"{name}-{os.getpid()}@{socket.gethostname()}",
        pool="threads",
        concurrency=chosen.concurrency,
        queues=queues,
        loglevel="INFO",
        # Workers have nothing to tell each other: what they must agree on is in Postgres.
        without_gossip=True,
        without_mingle=True,
    )
    worker.start()
    return int(worker.exitcode or 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
