"""`python -m config.worker`: one worker process. With the queue `isolated`, it tries suspected runs: `config.isolated`.

It runs Celery's own worker. Celery's command line would first import an interactive shell, which takes 8 MB of each
process.

Until the worker is set up, Python does not collect garbage. Almost everything that imports make stays in memory. The
collector would go through it some forty times, a quarter of the processor time of a start.
"""

import argparse
import gc
import os
import socket
import sys
from collections.abc import Sequence

if __name__ == "__main__":
    gc.disable()  # before the imports below; config.celery enables it

from config import celery
from config.celery import app, share_connections
from runtime import broker


def main(arguments: Sequence[str]) -> int:
    """Run until a stop signal. Return the exit code."""
    parser = argparse.ArgumentParser(prog="config.worker", description=__doc__)
    parser.add_argument(
        "--queues",
        default="resumed,runs",
        help="the queues to read, separated by commas (default: %(default)s)",
    )
    parser.add_argument(
        "--concurrency",
        type=int,
        default=256,
        help="how many runs at once, most of which wait (default: %(default)s)",
    )
    options = parser.parse_args(arguments)
    if options.queues == "isolated":
        from config import isolated

        return isolated.supervise(options.concurrency)
    celery.queues = options.queues.split(",")
    if not {broker.RESUMED, broker.NEW}.issuperset(celery.queues):
        parser.error(f"--queues takes {broker.RESUMED} and {broker.NEW}, or isolated alone")
    share_connections()
    if broker.RESUMED in celery.queues:
        celery.queues.append(broker.open_own_queue())
    worker = app.Worker(
        hostname=f"worker-{os.getpid()}@{socket.gethostname()}",
        pool="threads",
        concurrency=options.concurrency,
        queues=[broker.JOBS],
        loglevel="INFO",
        # Workers exchange no messages: their shared state is in Postgres.
        without_gossip=True,
        without_mingle=True,
    )
    worker.start()
    return int(worker.exitcode or 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
