"""The provider as a process of its own, for tests that start the whole application."""

import os
import sys

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")


def main(faults: str = "", about: str = "", share: str = "0", seed: str = "0") -> None:
    from agents.registry import load
    from tests.support.provider.faults import Fault
    from tests.support.provider.server import Provider
    from tests.support.provider.storms import Storm

    registry = load(["agents.flows.hr"])
    chosen = [Fault(one) for one in faults.split(",") if one]
    storm = Storm(float(share), seed=int(seed))
    with Provider(registry, chosen, about, weather=storm) as provider:
        print(provider.url, flush=True)  # noqa: T201
        sys.stdin.read()
        print(",".join(provider.happened), flush=True)  # noqa: T201


main(*sys.argv[1:])
