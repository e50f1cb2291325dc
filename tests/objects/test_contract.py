"""The contract that every object store keeps."""

from pathlib import Path

import pytest

from runtime.errors import ObjectStoreDown
from runtime.objects.by_address import store_at
from runtime.objects.folder import MARKER, Folder
from runtime.ports.objects import ObjectStore
from tests.support.object_stores import MakeStore

KEY = "contents/ab/abc-1"


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, make_store: MakeStore) -> ObjectStore:
    """A new store."""
    return make_store(request.param)


def test_an_object_is_read_as_it_was_written_until_it_is_deleted(store: ObjectStore) -> None:
    store.check()
    for data in (b"first", b"\x00\xff" * 3_000_000, b""):  # more than one part of an upload
        store.put(KEY, data)
        assert store.get(KEY) == data
    assert store.get("contents/ab/abc") is None, "the beginning of a key is no key"
    store.put("contents/ab/abc", b"other")
    for _ in range(2):
        store.delete(KEY)
        assert store.get(KEY) is None
    assert store.get("contents/ab/abc") == b"other"
    store.check()


@pytest.mark.parametrize("key", ["", "/etc/x", "../x", "a/../b", "a//b", "A", "a b", "a/.x"])
def test_a_key_stays_inside_the_store(store: ObjectStore, key: str) -> None:
    for act in (store.get, store.delete, lambda key: store.put(key, b"")):
        with pytest.raises(ValueError, match="is no key"):
            act(key)


def test_a_folder_that_is_not_the_store_is_down_and_lacks_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    store = Folder(folder)
    with pytest.raises(ObjectStoreDown, match="No such file"):
        store.check()
    store.put(KEY, b"here")
    folder.rename(tmp_path / "elsewhere")
    folder.mkdir()  # such as a mount point without its disk
    for act in (store.get, store.delete):
        with pytest.raises(ObjectStoreDown, match=MARKER):
            act(KEY)


def test_a_bucket_that_is_not_the_store_is_down_and_lacks_nothing(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_at(bucket)
    store.put(KEY, b"here")
    for other in (f"{bucket}/elsewhere", "s3://no-such-bucket"):
        for act in (store_at(other).get, store_at(other).delete):
            with pytest.raises(ObjectStoreDown, match=MARKER):
                act(KEY)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    store = store_at(bucket)
    with pytest.raises(ObjectStoreDown, match="error sending request"):
        store.check()
    for act in (store.get, store.delete, lambda key: store.put(key, b"")):
        with pytest.raises(ObjectStoreDown, match="error sending request"):
            act(KEY)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(ValueError, match="AccessKeyId"):
        store_at(bucket)


def test_a_folder_deletes_the_part_of_a_killed_writer(tmp_path: Path) -> None:
    store = Folder(tmp_path)
    store.put(KEY, b"here")
    part = (tmp_path / KEY).with_name("abc-1.0badcafe.part")
    part.write_bytes(b"he")
    other = (tmp_path / KEY).with_name("abc-11.0badcafe.part")
    other.write_bytes(b"he")
    store.delete(KEY)
    assert (part.exists(), other.exists()) == (False, True)
