"""Commands of the checkout, in processes of their own."""

import subprocess
import sys
from collections.abc import Mapping

from config.env.environment import ROOT

WITHIN = 180.0


def run(*command: object, env: Mapping[str, str] | None = None, told: str = "") -> "Done":
    """Run it in the checkout, with these variables alone if some are given."""
    return subprocess.run(
        [str(word) for word in command],
        cwd=ROOT,
        env=env,
        input=told,
        capture_output=True,
        text=True,
        check=False,
        timeout=WITHIN,
    )


def python(*words: object, env: Mapping[str, str] | None = None) -> "Done":
    return run(sys.executable, *words, env=env)


def manage(*words: object, env: Mapping[str, str] | None = None) -> "Done":
    return python("manage.py", *words, env=env)


Done = subprocess.CompletedProcess[str]
