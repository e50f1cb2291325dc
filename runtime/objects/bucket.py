"""An object store in a bucket: S3 and what speaks its protocol, Google Cloud Storage, Azure Blob Storage."""

from datetime import timedelta
from typing import Any

from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import from_url

from runtime.errors import ObjectStoreDown
from runtime.ports.objects import require_key, require_size

MARKER = "signoff-object-store"  # a bucket without it is not this store
TIMES: Any = {"connect_timeout": "3s", "timeout": "20s"}
RETRIES: Any = {"max_retries": 2, "retry_timeout": timedelta(seconds=10)}
MAX_PROBLEM = 300
PROBLEMS = (BaseError, OSError)  # obstore raises FileNotFoundError and PermissionError of Python


class Bucket:
    """The objects below an address such as `s3://bucket/prefix`. Credentials come from the environment."""

    def __init__(self, address: str, *, marked: bool = True) -> None:
        """Raise ValueError if an account or a credential is missing."""
        self._address = address
        self._marked = marked
        try:
            self._store: Any = client(address)
        except (*PROBLEMS, TypeError) as exc:
            raise ValueError(short(exc)) from exc
        self._is_marked = False

    def put(self, key: str, data: bytes) -> None:
        """Write an object in one request."""
        require_key(key)
        try:
            self._mark()
            self._store.put(key, data, use_multipart=False)
        except PROBLEMS as exc:
            raise self._down(exc) from exc

    def swap(self, key: str, data: bytes, *, before: bytes | None) -> bool:
        """Write an object if it is `before` now. The bucket compares its tag."""
        require_key(key)
        try:
            self._mark()
            mode: Any = "create" if before is None else self._version(key, before)
            if mode is None:
                return False
            self._store.put(key, data, mode=mode, use_multipart=False)
        except (AlreadyExistsError, PreconditionError, FileNotFoundError):
            return False
        except PROBLEMS as exc:
            raise self._down(exc) from exc
        return True

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes | None:
        """Return the object, None if there is none."""
        try:
            response = self._store.get(require_key(key))
            require_size(key, response.meta["size"], max_bytes)
            return bytes(response.bytes())
        except FileNotFoundError:
            self._require_marker()
            return None
        except PROBLEMS as exc:
            raise self._down(exc) from exc

    def delete(self, key: str) -> None:
        """Delete the object."""
        try:
            self._store.delete(require_key(key))
        except FileNotFoundError:
            pass
        except PROBLEMS as exc:
            raise self._down(exc) from exc
        self._require_marker()

    def prepare(self) -> None:
        """Mark a bucket that is new."""
        if self._is_marked:
            return
        self.check()
        try:
            self._mark()
        except PROBLEMS as exc:
            raise self._down(exc) from exc

    def check(self) -> None:
        """Return if the bucket can be listed, and is the store or has no object yet."""
        try:
            is_new = not any(True for _ in self._store.list(chunk_size=1))
        except PROBLEMS as exc:
            raise self._down(exc) from exc
        if not is_new:
            self._require_marker()

    def _version(self, key: str, before: bytes) -> dict[str, str] | None:
        """Return the version of the object, None if it is not `before`."""
        response = self._store.get(key)
        if response.meta["size"] != len(before) or bytes(response.bytes()) != before:
            return None
        return {name: response.meta[name] for name in ("e_tag", "version") if response.meta[name]}

    def _mark(self) -> None:
        if self._is_marked or not self._marked:
            return
        try:
            self._store.head(MARKER)
        except FileNotFoundError:
            self._store.put(MARKER, b"", use_multipart=False)
        self._is_marked = True

    def _require_marker(self) -> None:
        """Raise ObjectStoreDown in another bucket, where no object would be found."""
        if not self._marked:
            return
        try:
            self._store.head(MARKER)
        except FileNotFoundError as exc:
            raise ObjectStoreDown(
                f"the object store {self._address} cannot be used: it lacks the object {MARKER}"
            ) from exc
        except PROBLEMS as exc:
            raise self._down(exc) from exc

    def _down(self, exc: Exception) -> ObjectStoreDown:
        return ObjectStoreDown(f"the object store {self._address} cannot be used: {short(exc)}")


def client(address: str, times: Any = TIMES, retries: Any = RETRIES) -> Any:
    """Return the client of a store, which connects when it is used."""
    # Only an address that the operator gives is without TLS.
    options: Any = {**times, "allow_http": True}
    return from_url(address, client_options=options, retry_config=retries)


def short(exc: Exception) -> str:
    """Return the first sentences of an error, without the data structures that obstore appends."""
    return " ".join(str(exc).partition("Debug source:")[0].split())[:MAX_PROBLEM]
