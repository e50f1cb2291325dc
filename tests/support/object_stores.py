"""Object stores for tests: a folder, and one that fails as long as the test says."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_django import Settings

from runtime.core.limits import KEPT_INLINE
from runtime.errors import ObjectStoreDown
from runtime.objects.folder import Folder
from runtime.ports import wiring
from runtime.ports.objects import ObjectStore

LARGE = "x" * (KEPT_INLINE + 1)


class Breakable:
    """A real store that is down while `is_down`."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self.is_down = False

    def put(self, key: str, data: bytes) -> None:
        self._up().put(key, data)

    def get(self, key: str) -> bytes | None:
        return self._up().get(key)

    def delete(self, key: str) -> None:
        self._up().delete(key)

    def check(self) -> None:
        self._up().check()

    def _up(self) -> ObjectStore:
        if self.is_down:
            raise ObjectStoreDown("the object store does not answer")
        return self.store


def files(folder: Path) -> list[Path]:
    """The objects in a folder, and parts of objects."""
    return sorted(path for path in folder.glob("contents/*/*"))


@pytest.fixture
def object_store(tmp_path: Path, settings: Settings) -> Iterator[Breakable]:
    """Large results of this process go into a folder."""
    store = Breakable(Folder(tmp_path / "objects"))
    wiring.plug(objects=store)
    yield store
    wiring.unplug_objects()


@pytest.fixture
def objects_folder(object_store: Breakable, tmp_path: Path) -> Path:
    return tmp_path / "objects"
