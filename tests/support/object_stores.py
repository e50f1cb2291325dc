"""Object stores for tests: a folder, a bucket of an S3 server, and one that fails as long as the test says."""

from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import Request, urlopen
from uuid import uuid4

import pytest
from django.test import override_settings
from moto.server import ThreadedMotoServer

from runtime.core.values.limits import KEPT_INLINE
from runtime.errors import ObjectStoreDown
from runtime.ports import wiring
from runtime.ports.objects import ObjectStore
from runtime.store.object_stores.stores import open_store

LARGE = "x" * (KEPT_INLINE + 1)
BOTH = pytest.mark.parametrize("object_store", ["folder", "s3"], indirect=True)


class Breakable:
    """A real store that is down while `is_down`."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self.is_down = False
        self._keys: set[str] = set()  # that were ever written

    def put(self, key: str, data: bytes) -> None:
        self._up().put(key, data)
        self._keys.add(key)

    def keys(self) -> list[str]:
        """The keys of its objects."""
        return [key for key in sorted(self._keys) if self.store.get(key) is not None]

    def swap(self, key: str, data: bytes, *, before: bytes | None) -> bool:
        return self._up().swap(key, data, before=before)

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes | None:
        return self._up().get(key, max_bytes=max_bytes)

    def delete(self, key: str) -> None:
        self._up().delete(key)

    def prepare(self) -> None:
        self._up().prepare()

    def check(self) -> None:
        self._up().check()

    def _up(self) -> ObjectStore:
        if self.is_down:
            raise ObjectStoreDown("the object store does not answer")
        return self.store


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """The address of an S3 server, which is started for the first test that needs it."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(s3: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of objects in a new bucket, with credentials in the environment."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": "for-tests",
        "AWS_SECRET_ACCESS_KEY": "for-tests",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": s3,
    }.items():
        monkeypatch.setenv(name, value)
    name = f"b{uuid4().hex}"
    with urlopen(Request(f"{s3}/{name}", method="PUT")) as answer:  # noqa: S310 - on loopback
        assert answer.status == 200
    return f"s3://{name}/one/place"


MakeStore = Callable[[str], ObjectStore]


@pytest.fixture
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> MakeStore:
    """Make a store of a kind."""

    def make(kind: str) -> ObjectStore:
        if kind == "s3":
            return open_store(request.getfixturevalue("bucket"))
        (tmp_path / "objects").mkdir()
        return open_store(str(tmp_path / "objects"))

    return make


@pytest.fixture
def object_store(request: pytest.FixtureRequest, make_store: MakeStore) -> Iterator[Breakable]:
    """Large results of this process go into a folder, or the store that the test names."""
    store = Breakable(make_store(getattr(request, "param", "folder")))
    wiring.plug(objects=store)
    with override_settings(SIGNOFF_OBJECT_STORE="this one"):
        yield store
    wiring.unplug_objects()
