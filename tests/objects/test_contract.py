"""The contract that every object store keeps."""

import os
import socket
from functools import partial
from pathlib import Path

import pytest
from obstore.store import LocalStore, from_url

from runtime.errors import ObjectStoreDown
from runtime.ports.objects import MARKER, ObjectStore
from runtime.store.object_stores.bucket import Listing, Unlisted, Unread, open_listing
from runtime.store.object_stores.stores import Folder, open_store
from tests.support.object_stores import MakeStore
from tests.support.threads import together

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


@pytest.mark.parametrize("key", ["", "/etc/x", "../x", "a/../b", "a//b", "a\n", "a b", "a/.x"])
def test_a_key_stays_inside_the_store(store: ObjectStore, key: str) -> None:
    for act in (store.get, store.delete, lambda key: store.put(key, b"")):
        with pytest.raises(ValueError, match="is no key"):
            act(key)


def test_an_object_is_swapped_by_one_of_those_who_read_it(store: ObjectStore) -> None:
    assert store.swap(KEY, b"one", before=None)
    assert not store.swap(KEY, b"other", before=None)
    assert not store.swap(KEY, b"other", before=b"two")
    assert not store.swap("contents/none", b"other", before=b"one")
    assert store.get(KEY) == b"one"
    won: list[bytes] = []

    def swap(data: bytes) -> None:
        if store.swap(KEY, data, before=b"one"):
            won.append(data)

    together([partial(swap, b"%d" % n) for n in range(8)])
    assert won == [store.get(KEY)]


def test_a_new_store_is_prepared_for_readers(store: ObjectStore) -> None:
    with pytest.raises(ObjectStoreDown, match=MARKER):
        store.get(KEY)
    for _ in range(2):
        store.prepare()
        assert store.get(KEY) is None


def test_an_object_above_the_limit_is_not_read(store: ObjectStore) -> None:
    store.put(KEY, b"1234")
    assert store.get(KEY, max_bytes=4) == b"1234"
    with pytest.raises(ValueError, match="has 4 bytes, at most 3 are read"):
        store.get(KEY, max_bytes=3)


def test_a_folder_follows_no_link_and_waits_for_no_pipe(tmp_path: Path) -> None:
    store, outside = Folder(tmp_path / "store"), tmp_path / "outside"
    outside.mkdir()
    (outside / "x").write_bytes(b"secret")
    store.put(KEY, b"here")
    (tmp_path / "store" / "link").symlink_to(outside)
    (tmp_path / "store" / "file").symlink_to(outside / "x")
    for key in ("link/x", "file"):
        for act in (
            store.get,
            store.delete,
            partial(store.put, data=b""),
            partial(store.swap, data=b"", before=b"secret"),
        ):
            with pytest.raises(ValueError, match="is a link"):
                act(key)
    os.mkfifo(tmp_path / "store" / "pipe")
    with pytest.raises(ObjectStoreDown, match="is not a file"):
        store.get("pipe")
    assert store.get("contents") is None
    assert [(path.name, path.read_bytes()) for path in outside.iterdir()] == [("x", b"secret")]


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
    store = open_store(bucket)
    store.put(KEY, b"here")
    for other in (f"{bucket}/elsewhere", "s3://no-such-bucket"):
        for act in (open_store(other).get, open_store(other).delete):
            with pytest.raises(ObjectStoreDown, match=MARKER):
                act(KEY)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    store = open_store(bucket)
    with pytest.raises(ObjectStoreDown, match="error sending request"):
        store.check()
    for act in (store.get, store.delete, lambda key: store.put(key, b"")):
        with pytest.raises(ObjectStoreDown, match="error sending request"):
            act(KEY)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(ValueError, match="AccessKeyId"):
        open_store(bucket)


def test_a_folder_deletes_the_part_of_a_killed_writer(tmp_path: Path) -> None:
    store = Folder(tmp_path)
    store.put(KEY, b"here")
    part = (tmp_path / KEY).with_name("abc-1.0badcafe.part")
    part.write_bytes(b"he")
    other = (tmp_path / KEY).with_name("abc-11.0badcafe.part")
    other.write_bytes(b"he")
    store.delete(KEY)
    assert (part.exists(), other.exists()) == (False, True)


# Lists


@pytest.fixture(params=["folder", "s3"])
def listed(request: pytest.FixtureRequest, tmp_path: Path) -> Listing:
    """A new store with three objects, and another one beside them."""
    if request.param == "folder":
        store = LocalStore(tmp_path / "in", mkdir=True)
        (tmp_path / "in2").mkdir()
        (tmp_path / "in2" / "e").write_bytes(b"")
    else:
        address = request.getfixturevalue("bucket")
        store = from_url(address, client_options={"allow_http": True})  # type: ignore[assignment]
        from_url(f"{address}2", client_options={"allow_http": True}).put("e", b"")
    for name in ("b.json", "a/c.json", "Z.json"):
        store.put(name, name.encode())
    return Listing(store)


def test_objects_are_listed_by_their_names_after_a_cursor(listed: Listing) -> None:
    names = ["Z.json", "a/c.json", "b.json"]
    for before in range(4):
        found = listed.after(names[before - 1] if before else "")
        assert [(one.name, one.size) for one in found] == [(n, len(n)) for n in names[before:]]


def test_an_object_is_read_as_it_was_listed(listed: Listing) -> None:
    first, *_ = listed.after("")
    assert listed.read(first, 100) == b"Z.json"
    assert listed.read(first, 5) is None
    listed._store.put("Z.json", b"other")
    assert listed.after("")[0].stamp != first.stamp
    assert listed.read(first, 100) is None
    listed._store.delete("Z.json")
    assert listed.read(first, 100) is None


def test_a_store_that_does_not_answer_says_so_in_time(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Unlisted, match=r"^the store answers NoSuchBucket$"):
        open_listing("s3://none-such/x").after("")
    found = Listing(from_url(bucket, client_options={"allow_http": True}))
    found._store.put("a", b"")
    [one] = found.after("")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setattr("runtime.store.object_stores.bucket.ANSWER", "200ms")
        late = open_listing.__wrapped__(bucket)
        with pytest.raises(Unlisted, match=r"^the store does not answer in time$"):
            late.after("")
        with pytest.raises(Unread) as unread:
            late.read(one, 10)
        assert unread.value.passes
    with pytest.raises(Unlisted, match=r"^the store cannot be reached$"):
        late.after("")
