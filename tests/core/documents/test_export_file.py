"""A run as a file: it reads back equal, and a file with parts that do not fit is refused despite its signature."""

import json
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from runtime.core.documents import export_file
from runtime.core.documents.blobs import digest_of, extract_blob
from runtime.core.documents.codec import encode_entry
from runtime.core.documents.export_file import ExportFile
from runtime.core.errors import NewerSchema, Unreadable
from runtime.core.events import Event, Exported, ToolReturned
from runtime.core.limits import KEPT_INLINE
from runtime.core.machine.replay import Entry, fold, initial, step
from tests.core.machine.events import STARTED
from tests.core.machine.walks import AT

RUN = UUID(int=9)
LEFT = Exported(by="eve")
BIG = "x" * (KEPT_INLINE + 1)


def packed(*events: Event, contents: dict[str, str] | None = None) -> ExportFile:
    """A run whose journal has these events, each in an entry of its own."""
    entries = tuple(encode_entry(Entry(at=AT, events=(event,))) for event in events)
    now = initial(RUN)
    for event in events:
        now = step(now, [event], head="", at=AT)
    texts = contents or {}
    manifest = export_file.manifest_of(now, entries, texts)
    return ExportFile(
        key_id="k", signature="00", manifest=manifest, entries=entries, contents=texts
    )


def retold(package: ExportFile, **changes: Any) -> ExportFile:
    """The package with a manifest that says something else."""
    return replace(package, manifest=json.dumps({**json.loads(package.manifest), **changes}))


def refusal(package: ExportFile) -> str:
    with pytest.raises(Unreadable) as raised:
        export_file.check(package)
    return str(raised.value)


RETURNED, STORED = extract_blob(ToolReturned(frame="0", call="c1.0", attempt=1, result=BIG))
assert STORED is not None
TEXTS = {STORED.digest: STORED.text}


def test_a_packed_file_reads_back_unchanged() -> None:
    package = packed(*STARTED, RETURNED, LEFT, contents=TEXTS)
    assert export_file.decode(export_file.encode(package)) == package
    manifest, now = export_file.check(package)
    assert (manifest.schema, manifest.run, manifest.agent) == (1, RUN, "a")
    assert (manifest.requester, manifest.position) == ("ada", len(package.entries))
    assert (manifest.agents, manifest.contents) == ({"a": "f"}, tuple(TEXTS))
    assert manifest.secrets == ()
    assert replace(now, position=0) == fold(initial(RUN), [*STARTED, RETURNED, LEFT])
    assert now.position == len(package.entries)
    assert export_file.entries_signed(package.manifest) == manifest.entries


def test_the_text_of_a_file_is_compact_and_names_its_format() -> None:
    text = export_file.encode(packed(*STARTED[:1], LEFT))
    assert text.startswith('{"format":"abeyance.run","key_id":"k","signature":"00","manifest":"{')
    assert list(json.loads(text)) == [
        "format",
        "key_id",
        "signature",
        "manifest",
        "entries",
        "contents",
    ]


def test_the_digest_of_entries_is_that_of_each_in_their_order() -> None:
    digests = [digest_of("one"), digest_of("two")]
    assert export_file.digest_of_entries(["one", "two"]) == export_file.digest_of_digests(digests)
    assert export_file.digest_of_entries(["two", "one"]) != export_file.digest_of_digests(digests)
    assert export_file.digest_of_digests(digests) == (
        "sha256:fe5c467152b82b990b61225162a0eb26978d79a3cf54fb40f3e42ee67a9f7a81"
    )


def test_entries_that_are_not_those_that_were_signed_are_refused() -> None:
    package = packed(*STARTED[:2], LEFT)
    for entries in (package.entries[:-1], package.entries[::-1], (*package.entries, "{}")):
        assert refusal(replace(package, entries=entries)) == (
            "its entries differ from the signed ones"
        )


@pytest.mark.parametrize(
    "contents",
    [{}, {**TEXTS, digest_of("1"): "1"}, dict.fromkeys(TEXTS, "other")],
    ids=["missing", "more", "others"],
)
def test_blobs_that_differ_from_the_signed_ones_are_refused(contents: dict[str, str]) -> None:
    package = packed(*STARTED, RETURNED, LEFT, contents=TEXTS)
    assert refusal(replace(package, contents=contents)) == (
        "its contents differ from the signed ones"
    )


@pytest.mark.parametrize(
    "change",
    [{"agent": "b"}, {"requester": "eve"}, {"position": 1}, {"agents": {}}, {"agents": {"a": "g"}}],
)
def test_a_manifest_of_another_run_is_refused(change: dict[str, Any]) -> None:
    assert refusal(retold(packed(*STARTED[:2], LEFT), **change)) == (
        "its manifest does not fit its entries"
    )


def test_only_a_run_that_left_at_rest_arrives() -> None:
    assert refusal(packed(*STARTED[:2])) == "its journal does not end with an export"
    assert refusal(packed(*STARTED, LEFT)) == "one of its calls is running"
    assert refusal(packed(*STARTED, RETURNED, LEFT)) == "it lacks contents that it refers to"


def test_entries_that_make_no_sense_are_named() -> None:
    package = packed(*STARTED[:2], LEFT)
    entries = (*package.entries[:2], package.entries[1])
    nonsense = retold(
        replace(package, entries=entries), entries=export_file.digest_of_entries(entries)
    )
    assert refusal(nonsense).startswith("its entry 3: ")


def test_a_file_of_a_newer_version_is_refused_as_such() -> None:
    package = packed(*STARTED[:1], LEFT)
    with pytest.raises(NewerSchema) as raised:
        export_file.check(retold(package, schema=export_file.SCHEMA + 1, new=True))
    assert raised.value.schema == export_file.SCHEMA + 1
    entries = (*package.entries[:1], '{"schema":999}')
    newer = retold(
        replace(package, entries=entries), entries=export_file.digest_of_entries(entries)
    )
    with pytest.raises(NewerSchema):
        export_file.check(newer)


@pytest.mark.parametrize("manifest", ["", "[]", "{}", "7", '{"schema":"1"}', "[" * 100_000])
def test_a_manifest_that_cannot_be_read_is_none(manifest: str) -> None:
    package = replace(packed(*STARTED[:1], LEFT), manifest=manifest)
    assert refusal(package) == "its manifest cannot be read"
    assert export_file.entries_signed(manifest) == ""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is not JSON: "),
        ("[]", "it is no exported run"),
        ("{}", "it is no exported run"),
        ('{"format":"other"}', "it is no exported run"),
        ('{"format":"abeyance.run"}', "it is no exported run: "),
        ("[" * 100_000, "it is nested too deep"),
    ],
)
def test_a_text_that_is_no_such_file_is_refused(text: str, why: str) -> None:
    with pytest.raises(Unreadable) as raised:
        export_file.decode(text)
    assert str(raised.value).startswith(why)


def test_a_file_that_says_it_is_something_else_is_none() -> None:
    document = json.loads(export_file.encode(packed(*STARTED[:1], LEFT)))
    for text in (json.dumps({**document, "format": "other"}), json.dumps([document])):
        with pytest.raises(Unreadable) as raised:
            export_file.decode(text)
        assert str(raised.value) == "it is no exported run"


def test_keys_of_secrets_are_found_at_any_depth() -> None:
    value = json.dumps({"$secret": "k1:abc"})
    assert export_file.secret_key_ids([value]) == {"k1"}
    assert export_file.secret_key_ids([json.dumps(value), json.dumps(json.dumps(value))]) == {"k1"}
    assert export_file.secret_key_ids([value, json.dumps({"$secret": "k2:abc"}), "{}"]) == {
        "k1",
        "k2",
    }
    assert export_file.secret_key_ids(['{"secret":"k3:abc"}', '{"$secret":"nothing"}']) == set()
