"""The wheel of the client, built as for a release, without a network."""

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

from config.env.environment import ROOT


def test_the_wheel_has_all_modules_and_the_command(tmp_path: Path) -> None:
    words = ["-m", "uv", "build", "--wheel", "--offline", "--out-dir", str(tmp_path), "client"]
    environment = os.environ | {"UV_CACHE_DIR": str(tmp_path / "cache")}
    subprocess.run([sys.executable, *words], cwd=ROOT, env=environment, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (entry_points,) = [name for name in names if name.endswith("entry_points.txt")]
        assert b"signoff = signoff_client.command:main" in archive.read(entry_points)
    modules = {
        f"signoff_client/{path.name}" for path in (ROOT / "client/signoff_client").glob("*.py")
    }
    assert modules | {"signoff_client/py.typed"} <= names
