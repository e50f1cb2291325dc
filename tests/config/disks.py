"""Makes small and read-only disks, if this account may mount."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def disk(place: Path, size: int, *, read_only: bool = False) -> Iterator[Path | None]:
    """Mount a disk of so many bytes at `place`. Yield None if this account cannot mount."""
    place.mkdir()
    options = f"size={size},mode=755{',ro' if read_only else ''}"
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], capture_output=True, check=False
    )
    if mounted.returncode:
        yield None
        return
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)
