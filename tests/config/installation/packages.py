"""Makes wheels that hold nothing but metadata, and locks of them."""

import hashlib
import re
import zipfile
from pathlib import Path


def describe(
    name: str, version: str, *, needs: tuple[str, ...] = (), extras: tuple[str, ...] = ()
) -> str:
    """Return a package's metadata. For each of its extras it needs the package of that name."""
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Provides-Extra: {extra}" for extra in extras]
    lines += [f"Requires-Dist: {need}" for need in needs]
    lines += [f"Requires-Dist: {extra}; extra == '{extra}'" for extra in extras]
    return "\n".join([*lines, ""])


def make_wheel(folder: Path, name: str, version: str, metadata: str = "") -> str:
    """Write a wheel into `folder` and return its line of a lock."""
    stem = f"{re.sub('[-_.]+', '_', name)}-{version}"
    parts = {
        "METADATA": metadata or describe(name, version),
        "WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{stem}.dist-info/{part},,\n" for part in (*parts, "RECORD"))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for part, text in {**parts, "RECORD": record}.items():
            # ZipInfo has a fixed time, so the same wheel always has the same hash.
            archive.writestr(zipfile.ZipInfo(f"{stem}.dist-info/{part}"), text)
    return f"{name}=={version} --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"
