"""Manages the data folder of one machine: its lock, its files, and the account that owns each part.

    lock  home.json  secrets.json  credentials.json  processes.json  logs/     the starter's own
    keys/  worker-keys/  ledger/  objects/  static/  directory/  mail/  invoices/   the application's
    servers/  (or a folder elsewhere that the servers' account can reach)      Postgres', the broker's

Only files that the launcher made are given to another account. A folder's mode never changes after it was made.
"""

import fcntl
import json
import os
import secrets
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from config.local.errors import Refused
from config.local.processes.users import Account, can_access, chown, name_owner
from runtime.keyring import files, purposes

FORMAT = 1  # of a data folder, with the databases in it; there is no upgrade to another one
ELSEWHERE = Path(
    "/var/lib/signoff-clusters"
)  # if root's data folder is closed to the servers' account

APPLICATION_FOLDERS = (
    "keys",
    "worker-keys",
    "ledger",
    "objects",
    "static",
    "directory",
    "mail",
    "invoices",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataDir:
    """An opened data folder. `lock` is the locked file descriptor; `id` is unique and never changes."""

    folder: Path
    id: str
    lock: int
    servers: Path

    @property
    def credentials(self) -> Path:
        """The file with the secrets of the demo people."""
        return self.folder / "credentials.json"

    @property
    def processes(self) -> Path:
        """The file with the ids of our running processes."""
        return self.folder / "processes.json"

    @property
    def logs(self) -> Path:
        """The folder of the logs."""
        return self.folder / "logs"

    @property
    def secret_key(self) -> Path:
        """The file with Django's secret key."""
        return self.folder / "keys" / "django.secret"

    def get(self, name: str) -> Any:
        """Return a fact that an earlier start stored, or None."""
        return read(self.folder / "home.json").get(name)

    def set(self, **facts: Any) -> None:
        """Store facts for later starts."""
        path = self.folder / "home.json"
        write(path, read(path) | facts)

    def secret(self, name: str) -> str:
        """Return a random secret. The first call creates it."""
        path = self.folder / "secrets.json"
        stored = read(path)
        if name not in stored:
            stored[name] = secrets.token_urlsafe(32)
            write(path, stored)
        return str(stored[name])


def choose_default_folder() -> Path:
    """Return the default data folder of the starter."""
    if os.geteuid() == 0:
        return Path("/var/lib/signoff")
    return Path("~/.local/share/signoff").expanduser()


def open_home(folder: Path, servers_account: Account) -> DataDir:
    """Lock the folder, and make it if it does not exist. Raise Refused if it is in use or not usable.

    A folder of another version is refused unchanged.
    """
    try:
        _make(folder, servers_account)
        _require_format(folder)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(lock, 20, 0).decode(errors="replace").strip()
            os.close(lock)
            raise Refused(
                f"{folder} is in use by process {holder or 'unknown'}:"
                " stop it, or choose another folder with HOME_DIR=…"
            ) from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        (folder / "logs").mkdir(mode=0o700, exist_ok=True)
        settings = read(folder / "home.json")
        identity = settings.get("id") or secrets.token_hex(8)
        servers = _choose_servers_folder(folder, settings, identity, servers_account)
        home = DataDir(folder=folder, id=identity, lock=lock, servers=servers)
        home.set(
            format=FORMAT, id=identity, servers=None if servers.parent == folder else str(servers)
        )
    except OSError as error:
        reason = _describe_error(error)
        raise Refused(
            f"cannot use {folder} ({reason}): HOME_DIR=… chooses another folder"
        ) from error
    return home


def _describe_error(error: OSError) -> str:
    """Describe an error. For a denied path it names the owner, usually the account of an earlier start."""
    reason = error.strerror or str(error)
    if not isinstance(error, PermissionError) or error.filename is None:
        return reason
    path = Path(error.filename)
    while not os.path.exists(path):  # noqa: PTH110 - Path.exists raises without permission
        path = path.parent
    return f"{reason}: {path} belongs to {name_owner(path)}"


def attach(folder: Path) -> DataDir:
    """Open the folder that a running `make up` has locked. Raise Refused if none is running."""
    try:
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        raise Refused(f"there is nothing in {folder} yet: start it with make up") from None
    except NotADirectoryError:
        raise Refused(f"{folder} is not a folder") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        pass
    else:
        os.close(lock)
        raise Refused(f"nothing runs on {folder}: start it with make up, and leave that running")
    settings = read(folder / "home.json")
    servers = Path(settings["servers"]) if settings["servers"] else folder / "servers"
    return DataDir(folder=folder, id=settings["id"], lock=lock, servers=servers)


def make_folders(home: DataDir, application: Account) -> None:
    """Make the application's folders, and give it those that are not its own. Give all if its account has changed."""
    for name in APPLICATION_FOLDERS:
        (home.folder / name).mkdir(mode=0o700, exist_ok=True)
    # Only processes that decide get the private keys.
    for purpose in purposes.PURPOSES:
        key = files.name_shared_file(purpose)
        link = home.folder / "worker-keys" / key
        if not link.is_symlink():
            link.symlink_to(Path("..", "keys", key))
    if not home.secret_key.exists():
        _write_text(home.secret_key, secrets.token_urlsafe(64) + "\n")
    if os.geteuid() == 0:
        changed = home.get("application") != application.uid
        for folder in (home.folder / name for name in APPLICATION_FOLDERS):
            if changed or folder.stat().st_uid != application.uid:
                _hand_over(folder, application.uid, application.gid)
        home.set(application=application.uid)


def hand_over(home: DataDir) -> None:
    """Make the application's account the owner of all files in its folders. Does nothing unless run by root."""
    uid = home.get("application")
    if os.geteuid() == 0 and uid is not None:
        for name in APPLICATION_FOLDERS:
            _hand_over(home.folder / name, uid, -1)


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file atomically, readable only by its owner."""
    _write_text(path, json.dumps(content, indent=2) + "\n")


def read(path: Path) -> dict[str, Any]:
    """Read a JSON object; empty without a file. Raise Refused for a damaged file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise make_damage_error(path, str(error)) from error
    if not isinstance(content, dict):
        raise make_damage_error(path, "it holds no object")
    return content


def make_damage_error(path: Path, reason: str) -> Refused:
    """Return the error for a damaged file."""
    return Refused(f"{path} is damaged ({reason}): put back the copy of a backup")


def _write_text(path: Path, text: str) -> None:
    handle, scratch = tempfile.mkstemp(dir=path.parent)  # 0600 from the start
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    Path(scratch).rename(path)


def _make(folder: Path, servers_account: Account) -> None:
    missing = [parent for parent in folder.parents if not parent.exists()]
    for parent in reversed(missing):
        parent.mkdir()
    try:
        folder.mkdir()
    except FileExistsError:
        if not folder.is_dir():
            raise Refused(
                f"{folder} is not a folder: choose another place with HOME_DIR=…"
            ) from None
    else:
        # The servers' account must pass through the folder without listing it.
        folder.chmod(0o711 if servers_account.switch else 0o700)


def _require_format(folder: Path) -> None:
    settings = read(folder / "home.json")
    if settings and settings.get("format") != FORMAT:
        raise Refused(
            f"{folder} was made by another version, and cannot be upgraded. Nothing was changed:"
            " keep using that version for it, or start with an empty folder (HOME_DIR=…)"
        )


def _choose_servers_folder(
    folder: Path, settings: Mapping[str, Any], identity: str, account: Account
) -> Path:
    if "id" in settings:
        servers = Path(settings["servers"]) if settings["servers"] else folder / "servers"
    elif can_access(account, folder, os.X_OK):
        servers = folder / "servers"
    else:
        servers = ELSEWHERE / identity
    if not servers.exists():
        if settings.get("servers"):
            raise Refused(
                f"{servers}, where Postgres keeps the data of {folder}, is not there: put it back, or choose"
                " another folder with HOME_DIR=…"
            )
        for path in (servers.parent, servers):
            if not path.exists():
                path.mkdir()
                path.chmod(0o711)
        chown(account, [servers])
    if not can_access(account, servers, os.R_OK | os.W_OK | os.X_OK):
        raise Refused(f"{account.name}, who runs Postgres, cannot reach {servers}")
    return servers


def _hand_over(folder: Path, uid: int, gid: int) -> None:
    for path in (folder, *folder.rglob("*")):
        os.chown(path, uid, gid, follow_symlinks=False)
