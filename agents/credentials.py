"""Gets one secret for a call: from the environment, a file, an OAuth 2 token server, or a Vault server.

An error says which credential is missing and what a person must do. It never quotes a secret or a server's answer.
Tokens are in the memory of this process until they expire.

A refresh token that a server gives in place of the one it was sent (RFC 6749, section 6) is kept. Some servers take
each refresh token once. So the workers of one file system refresh one after the other, each with a lock next to the
file. Before a worker sends the token, it reserves room for the next one in a second file; when the answer has one, that
file takes the place of the first. A token is lost if the worker dies between the two, or if the answer does: then the
server refuses the old one, and a person must get a new one.
"""

import errno
import fcntl
import json
import logging
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import httpx2

from agents.errors import CredentialMissing, NotDone
from runtime.core.values.enums import FailureCause
from runtime.network import load_authorities

ROOM_BYTES = 8192  # reserved for the next token
POLL_SECONDS = 0.05  # between two tries to get the lock
_UNWRITABLE = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR})

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Kept:
    """A refresh token in a file that this worker has locked. `room` is None if it cannot write the file."""

    name: str
    path: Path
    room: int | None

    @property
    def advice(self) -> str:
        """Say what else a person must do if the server refuses the token."""
        if self.room is not None:
            return ""
        return (
            f" The workers cannot write into {self.path.parent}: let them, if the server replaces refresh tokens at"
            " each use, for otherwise the next one is lost too."
        )

    def keep(self, sent: str, token: str) -> None:
        """Write the token over the one that was sent. Log it if that fails; keep the token that a person wrote."""
        try:
            if self.room is None:
                raise PermissionError
            with open(self.room, "r+b", closefd=False) as file:
                file.write(token.encode())  # over the reserved bytes, which are given back
                file.truncate()
                file.flush()
                os.fsync(self.room)
            if self.path.read_text().strip() == sent:
                _name_sibling(self.path, "new").replace(self.path)
                folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
                try:
                    os.fsync(folder)
                finally:
                    os.close(folder)
        except (OSError, UnicodeError) as exc:
            log.error(
                "Credential %s: the server replaced its refresh token, and %s cannot be written: %s."
                " The next refresh will be refused.",
                self.name,
                self.path,
                type(exc).__name__,
            )


@dataclass(frozen=True, slots=True)
class Unkept:
    """A refresh token in a variable of the environment, which no worker can change."""

    name: str
    variable: str

    @property
    def advice(self) -> str:
        """Say what else a person must do if the server refuses the token."""
        return (
            " If the server replaces refresh tokens at each use, give the tool a File that the workers can write: they"
            f" cannot change {self.variable}."
        )

    def keep(self, sent: str, token: str) -> None:
        """Log that the token is lost."""
        log.error(
            "Credential %s: the server replaced its refresh token, and the variable %s cannot be changed."
            " Use a File that the workers can write, or the next refresh may be refused.",
            self.name,
            self.variable,
        )


@contextmanager
def lock_token_file(name: str, path: str, seconds: float) -> Iterator[Kept]:
    """Lock a file of a refresh token for this block. Raise NotDone if it cannot be had within `seconds`."""
    token_path = Path(os.path.realpath(path))
    lock = room = None
    try:
        try:
            lock = _open_private(_name_sibling(token_path, "lock"))
            _wait(lock, name, time.monotonic() + seconds)
            room = _open_private(_name_sibling(token_path, "new"))
            os.posix_fallocate(room, 0, ROOM_BYTES)
        except OSError as exc:
            if exc.errno not in _UNWRITABLE:
                reason = f"no file can be written beside {token_path}: {type(exc).__name__}"
                raise NotDone(reason, cause=FailureCause.SETUP) from None
        yield Kept(name, token_path, room)
    finally:
        if room is not None:
            _name_sibling(token_path, "new").unlink(missing_ok=True)
        for descriptor in (room, lock):
            if descriptor is not None:
                os.close(descriptor)


def _name_sibling(path: Path, kind: str) -> Path:
    return path.with_name(f".{path.name}.{kind}")


def _open_private(path: Path) -> int:
    """Open a file that only this account may read."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    os.fchmod(descriptor, 0o600)
    return descriptor


def _wait(lock: int, name: str, until: float) -> None:
    """Take the lock. Raise NotDone if another process still has it at `until`.

    `flock` takes no timeout, and a signal cannot end it in a thread. So the lock is tried again after a pause.
    """
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                reason = f"another call refreshes the credential {name}, and takes too long"
                raise NotDone(reason, cause=FailureCause.TIME) from None
        time.sleep(POLL_SECONDS)


MOST_SECONDS = 10.0  # for one request to a token server
MOST_BYTES = 256 * 1024  # of its answer, decompressed
LEEWAY = 30.0  # seconds before its end a token is not used again
_REFUSED = frozenset({400, 401, 403, 404})


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """A secret, and for how many seconds a worker may use it again, 0 or less for once."""

    value: str
    seconds: float = 0.0

    def __repr__(self) -> str:
        return "Secret(••••)"


@runtime_checkable
class Credential(Protocol):
    """A credential of a tool. `name` is what the tool and people call it."""

    @property
    def name(self) -> str:
        """The name."""

    def fetch(self, seconds: float) -> Secret:
        """Return the secret within this time. Raise CredentialMissing if a person must act, else NotDone."""


# Threads share it without a lock: two that fetch at once keep the later token.
_tokens: dict[Credential, tuple[str, float]] = {}


@dataclass(frozen=True, slots=True)
class Environment:
    """A variable of the worker's environment."""

    name: str
    variable: str

    def fetch(self, seconds: float) -> Secret:
        """Return the variable."""
        if value := os.environ.get(self.variable, ""):
            return Secret(value=value)
        raise CredentialMissing(
            f"The credential {self.name} is missing: set {self.variable} for the workers, and start them again."
        )


@dataclass(frozen=True, slots=True)
class File:
    """A file that the worker can read, such as a secret of Docker or Kubernetes. It is read at each call."""

    name: str
    path: str

    def fetch(self, seconds: float) -> Secret:
        """Return the text of the file without the spaces and line breaks around it."""
        try:
            value = Path(self.path).read_text().strip()
        except (OSError, UnicodeDecodeError):
            value = ""
        if value:
            return Secret(value=value)
        raise CredentialMissing(
            f"The credential {self.name} is missing: put it into {self.path} on each worker's machine."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuth:
    """An access token of an OAuth 2 token server (RFC 6749), by `refresh_token`, or by the client's own credentials.

    The client authenticates with HTTP Basic. A token is used again until shortly before it expires. If the server
    replaces the refresh token at each use, the next one is kept in its file, which the workers must be able to write.
    """

    name: str
    token_url: str
    client_id: str
    client_secret: Environment | File
    refresh_token: Environment | File | None = None
    scope: str = ""

    def fetch(self, seconds: float) -> Secret:
        """Request a token."""
        source = self.refresh_token
        if source is None:
            answer = self._exchange({"grant_type": "client_credentials"}, seconds)
            return self._token(answer, self.client_secret)
        if isinstance(source, Environment):
            return self._refresh(source, Unkept(self.name, source.variable), seconds)
        with lock_token_file(self.name, source.path, min(seconds, MOST_SECONDS)) as stored_token:
            # A shorter limit could cut off the answer that has the next refresh token.
            return self._refresh(source, stored_token, MOST_SECONDS)

    def _refresh(
        self, source: Environment | File, stored_token: Kept | Unkept, seconds: float
    ) -> Secret:
        sent = source.fetch(seconds).value
        answer = self._exchange({"grant_type": "refresh_token", "refresh_token": sent}, seconds)
        next_token = None if answer is None else answer.get("refresh_token")
        if isinstance(next_token, str) and next_token not in ("", sent):
            stored_token.keep(sent, next_token)
        return self._token(answer, source, stored_token.advice)

    def _exchange(self, form: dict[str, str], seconds: float) -> dict[str, Any] | None:
        """Return the answer of the token server, None if it refuses."""
        if self.scope:
            form["scope"] = self.scope
        client = (self.client_id, self.client_secret.fetch(seconds).value)
        return _request(self.name, "POST", self.token_url, seconds, data=form, auth=client)

    def _token(
        self, answer: dict[str, Any] | None, source: Environment | File, advice: str = ""
    ) -> Secret:
        if answer is None:
            raise CredentialMissing(
                f"The credential {self.name} has expired or was withdrawn: get a new one for client {self.client_id}"
                f" from the server of {self.token_url}, and replace {_locate(source)}.{advice}"
            )
        token, lasts = answer.get("access_token"), answer.get("expires_in")
        if not isinstance(token, str) or not token:
            raise NotDone(f"the answer of the token server for {self.name} has no access_token")
        return Secret(value=token, seconds=lasts - LEEWAY if isinstance(lasts, int | float) else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Vault:
    """A field of a secret that a server with the HTTP interface of HashiCorp Vault keeps (KV version 1 or 2).

    `url` is the whole address, such as `https://vault:8200/v1/secret/data/crm`.
    """

    name: str
    url: str
    field: str
    token: Environment | File

    def fetch(self, seconds: float) -> Secret:
        """Read the field."""
        headers = {"X-Vault-Token": self.token.fetch(seconds).value}
        answer = _request(self.name, "GET", self.url, seconds, headers=headers)
        fields = {} if answer is None else answer.get("data")
        if isinstance(fields, dict) and isinstance(fields.get("data"), dict):
            fields = fields["data"]
        value = fields.get(self.field) if isinstance(fields, dict) else None
        if isinstance(value, str) and value:
            return Secret(value=value)
        raise CredentialMissing(
            f"The credential {self.name} is missing: put {self.field} at {self.url}, or let the token of"
            f" {_locate(self.token)} read it."
        )


def resolve_credentials(
    credentials: Iterable[Credential], seconds: float, *, anew: bool = False
) -> dict[str, str]:
    """Return the secret of each credential by name. With `anew` none comes from memory. Raise like `fetch`."""
    return {credential.name: _fetch_secret(credential, seconds, anew) for credential in credentials}


def forget_tokens() -> None:
    """Forget every token."""
    _tokens.clear()


def _locate(source: Environment | File) -> str:
    return source.variable if isinstance(source, Environment) else source.path


def _request(
    name: str, method: str, url: str, seconds: float, **options: Any
) -> dict[str, Any] | None:
    """Return the answer's JSON object, None if the server refuses. Raise NotDone if it cannot be reached.

    An answer may take `seconds` in all, and have MOST_BYTES. No redirect is followed, for it would get the secret.
    """
    limit = min(seconds, MOST_SECONDS)
    until = time.monotonic() + limit
    try:
        with (
            httpx2.Client(timeout=limit, trust_env=False, verify=load_authorities()) as client,
            client.stream(method, url, **options) as answer,
        ):
            body = _read(name, answer, until)
    except httpx2.HTTPError as exc:
        reason = f"the server of the credential {name} cannot be reached: {type(exc).__name__}"
        raise NotDone(reason, cause=FailureCause.NETWORK) from None
    if answer.status_code in _REFUSED:
        return None
    try:
        document = json.loads(body) if answer.is_success else None
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise NotDone(
            f"the server of the credential {name} answered with status {answer.status_code}"
        )
    return document


def _read(name: str, answer: httpx2.Response, until: float) -> bytes:
    body = bytearray()
    for chunk in answer.iter_bytes():
        body += chunk
        if len(body) > MOST_BYTES:
            raise NotDone(f"the answer of the server of the credential {name} is too long")
        if time.monotonic() > until:
            reason = f"the server of the credential {name} did not end its answer in time"
            raise NotDone(reason, cause=FailureCause.TIME)
    return bytes(body)


def _fetch_secret(credential: Credential, seconds: float, anew: bool) -> str:
    value, until = _tokens.get(credential, ("", 0.0))
    if not anew and time.monotonic() < until:
        return value
    began = time.monotonic()
    try:
        secret = credential.fetch(seconds)
    except (CredentialMissing, NotDone):
        raise
    except Exception as exc:  # which may quote a secret
        reason = f"the credential {credential.name} cannot be fetched: {type(exc).__name__}"
        raise NotDone(reason, cause=FailureCause.SETUP) from None
    _tokens.pop(credential, None)
    if secret.seconds > 0:
        _tokens[credential] = (secret.value, began + secret.seconds)
    return secret.value
