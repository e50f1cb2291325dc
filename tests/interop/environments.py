"""Environments of other frameworks' packages, by their locks. They are kept beside that of this project."""

import hashlib
import subprocess
import sys
from pathlib import Path

from config.env.environment import ROOT

FOLDER = ROOT / ".interop"


def python_of(lock: str) -> Path:
    """Return the interpreter of the environment, which is made or updated if the lock changed."""
    folder, source = FOLDER / lock, ROOT / "requirements" / f"{lock}.txt"
    python, stamp = folder / "bin" / "python", folder / "lock"
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    if not stamp.exists() or stamp.read_text() != digest:
        _uv("venv", "--clear", "--python", sys.executable, str(folder))
        options = ("--require-hashes", "--no-deps", "--only-binary", ":all:", "--compile-bytecode")
        _uv("pip", "install", "--python", str(python), *options, "-r", str(source))
        stamp.write_text(digest)
    return python


def _uv(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "uv", "--quiet", *words], check=True)
