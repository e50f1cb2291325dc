"""The provider as a process of its own, for tests that start the whole application."""

import os
import sys

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")


def main(faults: str = "") -> None:
    from agents.registry import load
    from tests.provider.faults import Fault
    from tests.provider.server import Provider

    registry = load(["agents.flows.hr"])
    with Provider(registry, [Fault(one) for one in faults.split(",") if one]) as provider:
        print(provider.url, flush=True)  # noqa: T201
        sys.stdin.read()
        print(",".join(provider.happened), flush=True)  # noqa: T201


main(*sys.argv[1:])
