"""The production profile: Django finds nothing to complain about."""

import os
import subprocess
import sys
from pathlib import Path

from config.env.environment import ROOT


def test_check_deploy_is_clean_on_the_production_profile(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ!?")
    done = subprocess.run(
        [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING"],
        cwd=ROOT,
        env={
            "PATH": os.environ["PATH"],
            "PUBLIC_URL": "https://abeyance.example",
            "BEHIND_PROXY": "yes",
            "SECRET_KEY_FILE": str(secret),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "no issues" in done.stdout + done.stderr
