"""The document of the API makes a client: a generator understands all of it, and its code can be imported."""

import json
import subprocess
import sys
from pathlib import Path

from config.api import api

IMPORT_ALL = """
import importlib, pkgutil, client
for module in pkgutil.walk_packages(client.__path__, "client."):
    importlib.import_module(module.name)
    print(module.name)
"""


def test_a_generated_client_has_every_operation(tmp_path: Path) -> None:
    document = api.get_openapi_schema()
    (tmp_path / "openapi.json").write_text(json.dumps(document, default=str))
    (tmp_path / "config.json").write_text('{"post_hooks": []}')  # its code need not look good
    words = ("generate", "--path", "openapi.json", "--config", "config.json", "--meta", "none")
    _python(
        *("-m", "openapi_python_client", *words, "--output-path", "client", "--fail-on-warning"),
        folder=tmp_path,
    )
    modules = _python("-c", IMPORT_ALL, folder=tmp_path).split()
    named = {name.rpartition(".")[2] for name in modules if name.startswith("client.api.")}
    operations = [one for path in document["paths"].values() for one in path.values()]
    assert {one["operationId"] for one in operations} <= named


def _python(*words: str, folder: Path) -> str:
    """Run Python in a folder, and return its output."""
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
