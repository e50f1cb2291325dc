"""The contract of listing, which each store keeps: in the order of names, after a cursor, in time."""

import socket
from pathlib import Path

import pytest
from obstore.store import LocalStore, from_url

from runtime.store.object_stores.bucket import Listing, Unlisted, Unread, listing_at


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
        listing_at("s3://none-such/x").after("")
    found = Listing(from_url(bucket, client_options={"allow_http": True}))
    found._store.put("a", b"")
    [one] = found.after("")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setattr("runtime.store.object_stores.bucket.ANSWER", "200ms")
        late = listing_at.__wrapped__(bucket)
        with pytest.raises(Unlisted, match=r"^the store does not answer in time$"):
            late.after("")
        with pytest.raises(Unread) as unread:
            late.read(one, 10)
        assert unread.value.passes
    with pytest.raises(Unlisted, match=r"^the store cannot be reached$"):
        late.after("")
