"""Files that pretend to be exported runs: each is refused in one line, and nothing of it is written."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone
from pytest_django import Settings

from agents.models import PublishedAgent
from approvals.models import AuditEntry, Request
from runtime.control.transfer import export_run, import_run
from runtime.core.documents import export_file
from runtime.errors import Forbidden, NotImportable, RunKnown
from runtime.models import JournalEntry, Run
from runtime.ports.access import Actor
from tests.support.forged_exports import Sender, uuid7
from tests.support.target import Target

ADMIN = Actor(person="admin")
Make = Callable[[Sender, str], str]


@pytest.fixture
def published(db: None) -> None:
    """The agent of these runs is known here."""
    PublishedAgent.objects.create(
        name="hr_onboarding",
        description="",
        fingerprint="sha256:f",
        input_schema={},
        tools=[],
        subagents=[],
        steps=None,
        published_at=timezone.now(),
    )


@pytest.fixture
def sender(tmp_path: Path, settings: Settings) -> Sender:
    """Another installation whose key is listed here."""
    sender = Sender(tmp_path)
    settings.IMPORT_KEYS = (tmp_path,)
    return sender


@pytest.fixture
def parcel(target: Target, published: None) -> str:
    """The file of a run that was exported here."""
    run = target.start()
    return export_run(run=run, actor=ADMIN)


def imported(text: str) -> Any:
    return import_run(data=text.encode(), actor=ADMIN)


def loaded(text: str, **changes: Any) -> str:
    """The file with other values, signed or not."""
    return json.dumps({**json.loads(text), **changes})


def with_entries(text: str, change: Callable[[list[str]], object]) -> str:
    """The file with changed entries under the signature it had."""
    entries = json.loads(text)["entries"]
    change(entries)
    return loaded(text, entries=entries)


def refused(text: str) -> str:
    """Why it is not taken over, in one line, with nothing written."""
    before = (Run.objects.count(), JournalEntry.objects.count(), AuditEntry.objects.count())
    with pytest.raises(NotImportable) as raised:
        imported(text)
    assert (Run.objects.count(), JournalEntry.objects.count(), AuditEntry.objects.count()) == before
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_an_import_with_a_listed_key_asks_for_approval_again(
    target: Target, sender: Sender, parcel: str
) -> None:
    run = imported(sender.send(parcel))
    assert Request.objects.filter(run=run).count() == 0
    assert target.advance(run).status == "suspended"
    request = Request.objects.get(run=run)
    assert (request.status, request.requester) == ("pending", "admin")
    acts = AuditEntry.objects.filter(run=run).order_by("seq").values_list("act", "actor")
    assert list(acts) == [("imported", "admin"), ("requested", None)]
    target.decide(run)
    assert target.advance(run).status == "completed"


def test_an_approval_given_before_the_export_is_worth_nothing(
    target: Target, sender: Sender, published: None
) -> None:
    target.ask_twice()
    run = target.decided()
    assert target.advance(run).status == "suspended"
    assert target.started(run) == 1
    text = export_run(run=run, actor=ADMIN)
    assert set(Request.objects.filter(run=run).values_list("status", flat=True)) == {
        "approved",
        "cancelled",
    }
    new = imported(sender.send(text))
    target.advance(new)
    assert Request.objects.filter(run=new, status="pending").count() == 1
    assert target.started(new) == 0


TAMPERED: dict[str, tuple[Make, str]] = {
    "an edited entry": (
        lambda s, t: with_entries(
            s.send(t), lambda e: e.__setitem__(1, e[1].replace("newhire", "mallory"))
        ),
        "its entries differ from the signed ones",
    ),
    "a dropped entry": (
        lambda s, t: with_entries(s.send(t), lambda e: e.pop(2)),
        "its entries differ from the signed ones",
    ),
    "a truncated journal": (
        lambda s, t: with_entries(s.send(t), lambda e: e.pop()),
        "its entries differ from the signed ones",
    ),
    "swapped entries": (
        lambda s, t: with_entries(s.send(t), lambda e: e.reverse()),
        "its entries differ from the signed ones",
    ),
    "a truncated file": (lambda s, t: s.send(t)[:-100], "it is not JSON"),
    "an empty file": (lambda s, t: "", "it is not JSON"),
    "something else": (lambda s, t: '{"format": "other"}', "it is no exported run"),
    "a list": (lambda s, t: "[]", "it is no exported run"),
    "a part that is missing": (
        lambda s, t: json.dumps({"format": export_file.FORMAT}),
        "it is no exported run",
    ),
    "brackets without end": (lambda s, t: "[" * 200_000, "it is n"),
    "an unknown signature": (
        lambda s, t: loaded(s.send(t), signature="00" * 64),
        "its signature does not verify",
    ),
    "a signature that is no signature": (
        lambda s, t: loaded(s.send(t), signature="zz"),
        "its signature does not verify",
    ),
    "the signature of another file": (
        lambda s, t: loaded(s.send(t), signature=json.loads(s.send(t))["signature"]),
        "its signature does not verify",
    ),
    "an edited manifest": (
        lambda s, t: loaded(
            s.send(t), manifest=json.loads(s.send(t))["manifest"].replace("ada", "eve")
        ),
        "its signature does not verify",
    ),
    "a manifest of other agents": (
        lambda s, t: s.send(t, manifest=lambda d: d["agents"].clear()),
        "its manifest does not fit its entries",
    ),
    "a newer manifest": (
        lambda s, t: s.send(t, manifest=lambda d: d.update(schema=export_file.SCHEMA + 1)),
        "is newer than this version reads",
    ),
    "a newer entry": (
        lambda s, t: s.send(
            t, entries=lambda e: e.append(json.dumps({**json.loads(e.pop()), "schema": 999}))
        ),
        "schema 999 is newer than this version reads",
    ),
    "a run that does not end with its export": (
        lambda s, t: s.send(
            t, entries=lambda e: e.pop(), manifest=lambda d: d.update(position=d["position"] - 1)
        ),
        "its journal does not end with an export",
    ),
    "entries that make no sense": (
        lambda s, t: s.send(t, entries=lambda e: e.insert(1, e[1])),
        "its entry 3",
    ),
    "an id from the future": (
        lambda s, t: s.send(t, run=uuid7(ahead=3 * 24 * 3600)),
        "its id is not valid",
    ),
    "contents that are not signed": (
        lambda s, t: loaded(s.send(t), contents={"sha256:0": "1"}),
        "its contents differ from the signed ones",
    ),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_a_tampered_file_is_refused(target: Target, sender: Sender, parcel: str, name: str) -> None:
    make, why = TAMPERED[name]
    assert why in refused(make(sender, parcel))


def test_a_key_that_is_not_listed_is_refused(
    target: Target, sender: Sender, parcel: str, tmp_path: Path, settings: Settings
) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    stranger = Sender(folder, "stranger")
    assert "key 'stranger' is not among those" in refused(stranger.send(parcel))
    namesake = Sender(folder, sender.key_id)
    assert "its signature does not verify" in refused(namesake.send(parcel))
    assert "is not among those" in refused(parcel)  # our own key is not listed either
    settings.IMPORT_KEYS = ()
    assert "is not among those" in refused(sender.send(parcel))


def test_a_run_is_taken_over_once(target: Target, sender: Sender, parcel: str) -> None:
    text = sender.send(parcel)
    run = imported(text)
    for again in (text, sender.send(parcel, run=run)):
        with pytest.raises(RunKnown):
            imported(again)
    assert Run.objects.filter(id=run).count() == 1


def test_the_run_that_left_does_not_come_back(target: Target, sender: Sender, parcel: str) -> None:
    left = export_file.check(export_file.decode(parcel))[0].run
    with pytest.raises(RunKnown):
        imported(sender.send(parcel, run=left))


def test_an_agent_that_is_not_here_takes_nothing_over(
    target: Target, sender: Sender, parcel: str
) -> None:
    PublishedAgent.objects.all().delete()
    assert refused(sender.send(parcel)) == "there is no agent 'hr_onboarding' here"


def test_a_file_beyond_the_limit_is_not_even_read(
    target: Target, sender: Sender, parcel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_file, "MAX_BYTES", 1_000)
    assert refused(sender.send(parcel)) == "it is larger than 1000 bytes"


@pytest.mark.parametrize("name", ["ada", "bea", "cyril", "stranger"])
def test_only_an_admin_can_import(target: Target, sender: Sender, parcel: str, name: str) -> None:
    with pytest.raises(Forbidden):
        import_run(data=sender.send(parcel).encode(), actor=Actor(person=name))


# The commands


def command(*args: object) -> tuple[str, str]:
    """Return the output of the command, and its error."""
    out = io.StringIO()
    try:
        call_command(*map(str, args), stdout=out)
    except CommandError as exc:
        return out.getvalue(), str(exc)
    return out.getvalue(), ""


def test_a_run_leaves_and_arrives_by_command(
    target: Target, sender: Sender, published: None, tmp_path: Path
) -> None:
    run, file = target.start(), tmp_path / "run.json"
    refusal = command("export_run", run, file, "--as", "bea")[1]
    assert (refusal, file.exists()) == ("Only admins may export runs.", False)
    said, error = command("export_run", run, file, "--as", "admin")
    assert (said, error) == (f"Run {run} is exported to {file}.\n", "")
    assert file.stat().st_mode & 0o777 == 0o600
    assert command("export_run", run, file, "--as", "admin")[1] == f"{file} exists already"
    assert command("import_run", file, "--as", "admin")[1].startswith("not imported: key")
    file.write_text(sender.send(file.read_text()))
    assert command("import_run", file, "--as", "ada")[1] != ""
    said, error = command("import_run", file, "--as", "admin")
    assert (said.endswith("continues here.\n"), error) == (True, "")
    assert command("import_run", file, "--as", "admin")[1].count("\n") == 0
    file.write_text(file.read_text()[:-50])
    assert command("import_run", file, "--as", "admin")[1].startswith(
        "not imported: it is not JSON"
    )
    assert "cannot be read" in command("import_run", tmp_path / "none", "--as", "admin")[1]
