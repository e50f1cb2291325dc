"""Exported runs as an attacker could have made them: changed, and signed with any key."""

import json
import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from runtime.core.documents import export_file
from runtime.core.documents.blobs import hash_text
from runtime.core.documents.export_file import ExportFile


class Sender:
    """Another installation: a key that signs exports, and the file of its public half."""

    def __init__(self, folder: Path, key_id: str = "sender") -> None:
        self.key_id = key_id
        self.file = folder / f"{key_id}.public"
        self._key = Ed25519PrivateKey.generate()
        self.file.write_text(f"{key_id}:{self._key.public_key().public_bytes_raw().hex()}\n")

    def sign(self, package: ExportFile) -> ExportFile:
        text = f"signoff.exports.v1\n{package.manifest}".encode()
        return replace(package, key_id=self.key_id, signature=self._key.sign(text).hex())

    def send(
        self,
        text: str,
        *,
        manifest: Callable[[dict[str, Any]], object] = lambda document: None,
        run: UUID | None = None,
    ) -> str:
        """The file of another run that is the same otherwise, with these changes made before it is signed."""
        package = export_file.decode(text)
        document = json.loads(package.manifest)
        document["run"] = str(run or uuid7())
        document["entries"] = export_file.hash_digests(hash_text(body) for body in package.entries)
        manifest(document)
        changed = replace(package, manifest=json.dumps(document))
        return export_file.encode(self.sign(changed))


def uuid7(ahead: float = 0.0) -> UUID:
    """A new id of a run that is started `ahead` seconds from now."""
    milliseconds = int((time.time() + ahead) * 1000)
    high, low = divmod(secrets.randbits(74), 1 << 62)
    return UUID(int=(milliseconds << 80) | (7 << 76) | (high << 64) | (2 << 62) | low)
