"""`python -m config.web`: the web process, on an address or on a socket that was handed down."""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any

import uvicorn

from config.asgi import application, doorbell


class Server(uvicorn.Server):
    """Ends the open streams first: waiting for them would be waiting for people to close their tabs."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        asyncio.get_running_loop().call_soon_threadsafe(doorbell.close)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="config.web", description=__doc__)
    parser.add_argument(
        "--bind", default="127.0.0.1:8000", help="host:port, or fd://N (default: %(default)s)"
    )
    chosen = parser.parse_args(arguments)
    server = Server(
        uvicorn.Config(
            application,
            **_place(chosen.bind),
            http="httptools",
            ws="none",
            log_config=None,
            lifespan="on",
            # Whoever may say where requests come from is configured, never assumed.
            proxy_headers=False,
            server_header=False,
            backlog=512,
            timeout_keep_alive=15,
            timeout_graceful_shutdown=2,
        )
    )
    server.run()
    return 0 if server.started else 1


def _place(bind: str) -> dict[str, Any]:
    if bind.startswith("fd://"):
        return {"fd": int(bind.removeprefix("fd://"))}
    host, _, port = bind.rpartition(":")
    return {"host": host.strip("[]"), "port": int(port)}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
