"""`manage.py verify_file FILE --key KEY`: verify the file of an archived run with public keys alone."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser

from approvals.port.evidence import VerifiedEvidence, verify_rows
from runtime.control import verified_file
from runtime.control.verified_file import VerifiedEntries, VerifiedFile
from runtime.core.run.continuation import derive_status
from runtime.core.values.texts import write_on_one_line
from runtime.errors import Tampered
from runtime.keyring import files, purposes
from runtime.keyring.signatures import PublicKeys
from runtime.management.command import parse_run_id
from runtime.store.sealed_files import MAX_BYTES

UNREADABLE = 2  # the exit code if a file or a key cannot be read, as for a wrong argument


class Command(BaseCommand):
    """Verifies a file without Postgres, the object store, and the keys of the installation."""

    help = (
        "Verify the file of an archived run on any machine with public keys alone. Print each thing that is verified"
        " or is not. End with 1 if the file is refused, with 2 if a file or key cannot be read."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path, metavar="FILE")
        parser.add_argument(
            "--key",
            type=Path,
            required=True,
            metavar="KEYS",
            help="the file that `public_keys archives` of the installation printed",
        )
        parser.add_argument(
            "--decisions",
            type=Path,
            metavar="KEYS",
            help="its decisions.public; without it no decision is verified",
        )
        parser.add_argument(
            "--rights",
            type=Path,
            metavar="KEYS",
            help="its rights.public; without it no allowance is verified",
        )
        parser.add_argument(
            "--entries",
            type=Path,
            action="append",
            default=[],
            metavar="FILE",
            help="a file of entries that were removed before; give each that the file of the run names",
        )
        parser.add_argument("--run", type=parse_run_id, help="refuse the file of another run")

    def handle(self, *args: Any, **options: Any) -> None:
        path: Path = options["file"]
        archives = _read_keys(options["key"], purposes.ARCHIVES)
        key_files = {purposes.DECISIONS: options["decisions"], purposes.RIGHTS: options["rights"]}
        keys = PublicKeys(
            keys={purpose: _read_keys(file, purpose) for purpose, file in key_files.items() if file}
        )
        data = _read_bytes(path)
        try:
            verified = verified_file.verify(data, archives.values(), options["run"])
            evidence = verify_rows(
                verified.approvals, verified.run, verified.decided, verified.contents, keys
            )
        except Tampered as exc:
            raise CommandError(write_on_one_line(f"{path} is refused: {exc}")) from exc
        try:
            before = verified_file.verify_removed(
                verified, map(_read_bytes, options["entries"]), tuple(archives.values())
            )
        except Tampered as exc:
            raise CommandError(
                write_on_one_line(f"A file of removed entries is refused: {exc}")
            ) from exc
        status = derive_status(verified.now, leased=False)
        lines = (
            f"Run {verified.run} of {verified.now.agent}, started by {verified.now.requester}: {status}",
            f"File sha256:{hashlib.sha256(data).hexdigest()}",
            *_describe_verified(verified, evidence, before),
            *_describe_unverified(verified, evidence, before),
        )
        for line in lines:  # words of the file could move the cursor, or imitate a line
            self.stdout.write(write_on_one_line(line))


def _read_keys(path: Path, purpose: str) -> dict[str, bytes]:
    if not path.is_file():
        raise CommandError(f"{path} is no file with public keys", returncode=UNREADABLE)
    try:
        return files.read(path, purpose)
    except ImproperlyConfigured as exc:
        raise CommandError(
            f"{path} does not hold public keys as lines of `id:hex`", returncode=UNREADABLE
        ) from exc


def _read_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as exc:
        raise CommandError(f"{path}: {exc.strerror}", returncode=UNREADABLE) from exc


def _describe_verified(
    verified: VerifiedFile, evidence: VerifiedEvidence, before: VerifiedEntries
) -> Iterator[str]:
    yield f"verified: the signature over every byte, with key {verified.signer}"
    yield f"verified: the digests of {verified.entries} entries, {len(verified.contents)} contents and the record"
    yield "verified: the entries lead to the state that the run's row has"
    if before.files:
        yield f"verified: the signatures of {len(before.files)} files with {before.entries} removed entries"
    if before.are_whole:
        yield "verified: the removed entries lead to the state where the others begin"
    yield f"verified: the digests of {evidence.requests} requests"
    if evidence.decisions:
        yield (
            f"verified: the signatures of {evidence.decisions} decisions and {evidence.votes} votes;"
            " the journal has the signed decisions"
        )
    if evidence.allowed:
        yield f"verified: the signatures of {evidence.allowed} allowances that passed calls"


def _describe_unverified(
    verified: VerifiedFile, evidence: VerifiedEvidence, before: VerifiedEntries
) -> Iterator[str]:
    if evidence.unverified:
        yield (
            f"not verified: {evidence.unverified} decisions or allowances: their public keys are not given, or"
            " arguments are sealed"
        )
    if missing := verified.removed - before.entries:
        missing_keys = [file.key for file in verified.removed_to if file not in before.files]
        places = ", ".join(missing_keys) or "no file"
        yield f"not verified: {missing} entries that were removed before, to {places}"
    if evidence.expired:
        yield f"not verified: {evidence.expired} decisions of the clock, which are not signed"
    if verified.elsewhere:
        yield f"not verified: {verified.elsewhere} decisions that were made on another installation"
    yield (
        f"not verified: the MACs of {verified.entries + before.entries} entries, {evidence.requests} requests and"
        f" {evidence.audit} audit rows, which need the secret keys of the installation"
    )
