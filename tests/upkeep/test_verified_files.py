"""An auditor with public keys alone verifies the file of an archived run, also against those who can write journals."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.core.management import CommandError, call_command
from pytest_django import DjangoAssertNumQueries, Settings

from approvals.models import Approval
from approvals.requests import snapshot
from approvals.rules.policy import Group
from approvals.signed import rows as signed_rows
from approvals.signed import statements
from config.env.environment import ROOT
from runtime.core.documents import codec, export_file
from runtime.core.documents.blobs import hash_text
from runtime.core.documents.signed_gzip import hash_body as digest_of_file
from runtime.core.values.enums import EffectClass, Verdict
from runtime.keyring import files, purposes, signatures
from runtime.models import ArchivedEntries, ArchivedRun
from runtime.ports.effects import ToolResult
from runtime.store import pool, sealed_files
from runtime.upkeep import retention
from tests.approvals.policies.office import put_in_force
from tests.support.fake_ports import FakeTool
from tests.support.long_runs import long_office_run
from tests.support.object_stores import Breakable
from tests.support.office import BEA, Target
from tests.support.seeds import decide, person

BIG = FakeTool(effect=EffectClass.READ, body=lambda request: ToolResult(value="Zaphod " * 10_000))
File = dict[str, Any]


@pytest.fixture
def copy(target: Target, object_store: Breakable, tmp_path: Path) -> Path:
    """A copy of the file of an archived run, with the public keys beside it."""
    target.effects.tools["create_account"] = BIG
    run = target.start()
    target.decide(run, Verdict.APPROVE, "as agreed")
    return archived(target, run, object_store, tmp_path)


def archived(target: Target, run: UUID, store: Breakable, folder: Path) -> Path:
    assert target.advance(run).status == "completed"
    assert retention.archive_run(pool.use_django_connection(), run)
    for purpose in (purposes.ARCHIVES, purposes.DECISIONS):
        with (folder / f"{purpose}.public").open("w") as printed:
            call_command("public_keys", purpose, stdout=printed)
    path = folder / "run.gz"
    path.write_bytes(store.get(ArchivedRun.objects.get(run=run).place or "") or b"")
    return path


@pytest.fixture
def verify(
    tmp_path: Path, settings: Settings, django_assert_num_queries: DjangoAssertNumQueries
) -> Callable[..., list[str]]:
    """Run the command where there is neither a database nor a secret key."""

    def verify(*options: str, decisions: bool = True) -> list[str]:
        keys, said = settings.KEYS_DIR, StringIO()
        settings.KEYS_DIR = tmp_path / "no-keys"
        files._read_ring.cache_clear()
        given = ["--key", str(tmp_path / "archives.public"), *options]
        if decisions:
            given += ["--decisions", str(tmp_path / "decisions.public")]
        try:
            with django_assert_num_queries(0):
                call_command("verify_file", str(tmp_path / "run.gz"), *given, stdout=said)
        finally:
            settings.KEYS_DIR = keys
            files._read_ring.cache_clear()
        return said.getvalue().splitlines()

    return verify


def refused(verify: Callable[..., list[str]], *options: str) -> tuple[str, int]:
    with pytest.raises(CommandError) as caught:
        verify(*options)
    return str(caught.value), caught.value.returncode


def resign(copy: Path, change: Callable[[File, File], object]) -> None:
    """Change file and record, make every digest anew, and sign as a process with the key of the journal can."""
    data = copy.read_bytes()
    file = json.loads(sealed_files.open_file(data))
    record, manifest = json.loads(file["record"]), json.loads(file["manifest"])
    change(file, record)
    file["record"] = json.dumps(record)
    manifest |= {
        "record": hash_text(file["record"]),
        "entries": export_file.hash_entries(file["entries"]),
    }
    file["manifest"] = json.dumps(manifest)
    copy.write_bytes(sealed_files._sign_file(f"run {manifest['run']}", json.dumps(file)))


@pytest.mark.slow
def test_a_file_is_verified_on_a_machine_with_nothing_but_public_keys(copy: Path) -> None:
    nowhere = {"DATABASE_URL": "postgres://127.0.0.1:1/none", "KEYS_DIR": "/nonexistent"}
    command = [sys.executable, str(ROOT / "manage.py"), "verify_file", copy.name]
    given = ["--key", "archives.public", "--decisions", "decisions.public"]

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *given],
            cwd=copy.parent,
            env={"PATH": os.environ["PATH"], **nowhere},
            capture_output=True,
            text=True,
            check=False,
        )

    done = run()
    assert (done.returncode, done.stderr) == (0, "")
    head, digest, *lines = done.stdout.splitlines()
    archived = ArchivedRun.objects.get()
    assert head == f"Run {archived.run_id} of hr_onboarding, started by ada: completed"
    assert digest == f"File {archived.digest}"
    entries = len(json.loads(sealed_files.open_file(copy.read_bytes()))["entries"])
    assert lines[:5] == [
        f"verified: the signature over every byte, with key {signatures.read_current_signer().key_id}",
        f"verified: the digests of {entries} entries, 1 contents and the record",
        "verified: the entries lead to the state that the run's row has",
        "verified: the digests of 1 requests",
        "verified: the signatures of 1 decisions and 0 votes; the journal has the signed decisions",
    ]
    assert lines[5].startswith(f"not verified: the MACs of {entries} entries, 1 requests and ")
    assert len(lines) == 6
    copy.write_bytes(copy.read_bytes()[:-1])
    done = run()
    assert (done.returncode, done.stdout) == (1, "")
    assert "run.gz is refused: the file was changed or cut off after its head" in done.stderr


def test_what_is_not_given_is_not_verified(copy: Path, verify: Callable[..., list[str]]) -> None:
    lines = verify(decisions=False)
    assert not any("votes" in line for line in lines)
    assert any(line.startswith("not verified: 1 decisions or allowances") for line in lines)


def test_other_keys_and_another_run_are_refused(
    copy: Path, verify: Callable[..., list[str]], tmp_path: Path
) -> None:
    run = str(ArchivedRun.objects.get().run_id)
    assert verify("--run", run)
    assert refused(verify, "--run", str(uuid4()))[0].count("is that of run") == 1
    data = copy.read_bytes()
    copy.write_bytes(sealed_files._sign_file(f"run {uuid4()}", sealed_files.open_file(data)))
    assert f"is that of run {run}, not" in refused(verify)[0]
    copy.write_bytes(data)
    archives, decisions = tmp_path / "archives.public", tmp_path / "decisions.public"
    right = archives.read_text()
    archives.write_text(decisions.read_text())
    assert "not signed with a given key: it names key" in refused(verify)[0]
    archives.write_text(right)
    decisions.write_text(right)
    said, code = refused(verify)
    assert ("is not among the given ones" in said, code) == (True, 1)
    for broken in ("no key", ""):
        archives.write_text(broken)
        assert refused(verify)[1] == 2
    archives.unlink()
    assert refused(verify) == (f"{archives} is no file with public keys", 2)
    archives.write_text(right)
    copy.unlink()
    assert refused(verify) == (f"{copy}: No such file or directory", 2)


def request_of(record: File) -> File:
    [request] = record["approvals"]["approvals_approval"]
    found: File = request
    return found


def rewritten(file: File, old: str, new: str) -> None:
    """Change the texts of the entries."""
    file["entries"] = [codec.decode_stored_text(body).replace(old, new) for body in file["entries"]]


def decided_wrongly(record: File, change: Callable[[Approval], object]) -> None:
    """Change the request and sign its decision again, as a web that checks nothing could."""
    row = request_of(record)
    approval = signed_rows.decode_approval(row)
    said = statements.read(approval)
    change(approval)
    approval.approval_digest = snapshot.compute_approval_digest(approval)
    statements.sign(approval, replace(said, digest=approval.approval_digest))
    names = ("approval_digest", "statement", "signature", "key_id", "origin", "expires_at")
    row.update({name: getattr(approval, name) for name in names})
    row["expires_at"] = row["expires_at"].isoformat()


FORGERIES: dict[str, tuple[Callable[[File, File], object], str]] = {
    "another output": (
        lambda file, record: record["row"].update(output='"forged"'),
        "its row has another output than its journal",
    ),
    "a MAC less": (lambda file, record: record["seals"].pop(0), "MACs for"),
    "an entry less": (
        lambda file, record: (file["entries"].pop(), record["seals"].pop()),
        "its manifest does not fit its entries",
    ),
    "other contents": (
        lambda file, record: file.update(contents={}),
        "its contents differ from the signed ones",
    ),
    "another decider in the journal": (
        lambda file, record: rewritten(file, '"by":"bea"', '"by":"eve"'),
        "it differs from the signed one",
    ),
    "another reason in the journal": (
        lambda file, record: rewritten(file, "as agreed", "as asked"),
        "it differs from the signed one",
    ),
    "a decision without a request": (
        lambda file, record: record["approvals"]["approvals_approval"].clear(),
        "it has no request",
    ),
    "a request that expired": (
        lambda file, record: request_of(record).update(status="expired"),
        "its request is expired",
    ),
    "another decider": (
        lambda file, record: request_of(record).update(decided_by="eve"),
        "the stored decider differs from the signed one",
    ),
    "other arguments": (
        lambda file, record: request_of(record).update(args='{"username":"eve"}'),
        "the stored call differs from the one submitted for review",
    ),
    "another sentence": (
        lambda file, record: request_of(record).update(sentence="Nothing happens"),
        "the stored request differs from the one submitted for review",
    ),
    "a signature of its own": (
        lambda file, record: request_of(record).update(signature="00" * 64),
        "the statement differs from the signed one",
    ),
    "the request of another run": (
        lambda file, record: request_of(record).update(run_id=str(uuid4())),
        "it belongs to another run",
    ),
    "an undone decision": (
        lambda file, record: record["approvals"]["approvals_auditentry"][0].update(
            act="undone", subject=f"request {request_of(record)['id']}"
        ),
        "the decision was undone",
    ),
    "a decision of the run's origin": (
        lambda file, record: decided_wrongly(
            record, lambda approval: setattr(approval, "origin", ["ada", "bea"])
        ),
        "bea, who decided, is in the run's origin",
    ),
    "a decision that came too late": (
        lambda file, record: decided_wrongly(
            record, lambda approval: setattr(approval, "expires_at", approval.decided_at)
        ),
        "it had expired when it was decided",
    ),
    "a row less in the audit": (
        lambda file, record: record["approvals"]["approvals_auditentry"].pop(0),
        "the audit: rows are missing",
    ),
    "a time that is none": (
        lambda file, record: request_of(record).update(decided_at="soon"),
        "request",
    ),
}


def test_a_signed_file_that_says_something_else_is_refused(
    copy: Path, verify: Callable[..., list[str]]
) -> None:
    original = copy.read_bytes()
    for forgery, (change, problem) in FORGERIES.items():
        copy.write_bytes(original)
        resign(copy, change)
        said, code = refused(verify)
        assert (problem in said, code) == (True, 1), (forgery, said)
    copy.write_bytes(original)
    assert verify()


def _name_file(run: Path, digest: str) -> None:
    """Let the file of the run name another file of removed entries."""
    resign(run, lambda _, record: record["removed"][0].__setitem__(3, digest))


def test_removed_entries_are_verified_from_their_files(
    target: Target, object_store: Breakable, tmp_path: Path, verify: Callable[..., list[str]]
) -> None:
    run = long_office_run(target, archives=True)
    target.decide(run, Verdict.APPROVE, "as agreed")
    archived(target, run, object_store, tmp_path)
    file, path = ArchivedEntries.objects.get(), tmp_path / "entries.gz"
    path.write_bytes(object_store.get(file.place) or b"")
    named = f"not verified: {file.last} entries that were removed before, to {file.place}"
    assert named in verify()
    lines = verify("--entries", str(path))
    assert f"verified: the signatures of 1 files with {file.last} removed entries" in lines
    assert "verified: the removed entries lead to the state where the others begin" in lines
    assert not [line for line in lines if "removed before" in line]
    assert verify(*["--entries", str(path)] * 2) == lines
    text = json.loads(sealed_files.open_file(path.read_bytes()))
    name = f"entries of run {run} from 1"
    rows, record = text["entries"], partial(_name_file, tmp_path / "run.gz")
    for problem, said_name, entries in (
        ("names no file of entries with these bytes", "", rows[1:]),
        ("is 'entries of run", f"{name}1", rows),
        (f"has {len(rows) - 1} entries", name, rows[1:]),
        ("cannot follow", name, rows[::-1]),
        ("to another state", name, [*rows[:-1], [rows[-1][0], "f" * 64, "k"]]),
    ):
        changed = json.dumps({**text, "entries": entries})
        path.write_bytes(sealed_files._sign_file(said_name or name, changed))
        if said_name:
            record(digest_of_file(path.read_bytes()))
        said, code = refused(verify, "--entries", str(path))
        assert (problem in said, code) == (True, 1), said


def test_the_votes_of_a_decision_are_verified_and_counted(
    target: Target, object_store: Breakable, tmp_path: Path, verify: Callable[..., list[str]]
) -> None:
    put_in_force("rules: [{name: Two, quorum: 2}]")
    cora = person("cora", Group.REVIEWERS)
    run = target.start()
    for voter in (BEA, cora):
        decide(Approval.objects.get(run=run), voter)
    copy = archived(target, run, object_store, tmp_path)
    assert any("1 decisions and 2 votes" in line for line in verify())
    original = copy.read_bytes()
    changes: list[tuple[Callable[[list[File]], object], str]] = [
        (lambda votes: votes.pop(), "1 of 2 approvals are signed"),
        (
            lambda votes: votes[0].update(person="eve"),
            "the vote of eve is not the one that they signed",
        ),
        (lambda votes: votes[0].update(signature="00" * 64), "is not the one that they signed"),
        (lambda votes: votes[0].update(verdict="deny"), "is not the one that they signed"),
    ]
    for change, problem in changes:
        copy.write_bytes(original)
        resign(copy, partial(_of_votes, change))
        assert problem in refused(verify)[0]


def _of_votes(change: Callable[[list[File]], object], file: File, record: File) -> None:
    change(record["approvals"]["approvals_vote"])
