"""The numbers of repetitions of the scenarios: few in CI, the promised ones with FAULTS_LONG=1 (make faults).

Each has a variable of its own, FAULTS_R5=10000 for example, which holds in either form.
"""

import os

LONG = bool(os.environ.get("FAULTS_LONG"))  # alone on the machine, so that times mean something


def count(name: str, *, short: int, long: int) -> int:
    """The number of FAULTS_`name`, else that of the form that was asked for."""
    return int(os.environ.get(f"FAULTS_{name}") or (long if LONG else short))
