"""A run as a file: it reads back equal, and a file with parts that do not fit is refused despite its signature."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any
from uuid import UUID

import pytest

from runtime.core.documents import export_file
from runtime.core.documents.blobs import extract_blob, hash_text
from runtime.core.documents.codec import SCHEMA, UPCASTERS, encode_entry
from runtime.core.documents.export_file import ExportedBeginning, ExportFile
from runtime.core.run.events import Event, Exported, ToolReturned
from runtime.core.run.reducer import Entry, fold, make_initial_state, step
from runtime.core.values.errors import NewerSchema, Unreadable
from runtime.core.values.limits import KEPT_INLINE
from tests.core.run.events import AT, STARTED

RUN = UUID(int=9)
LEFT = Exported(by="eve")
BIG = "x" * (KEPT_INLINE + 1)
OTHER_ENTRIES = "its entries differ from the signed ones"
OTHER_BLOBS = "its contents differ from the signed ones"
MISFIT = "its manifest does not fit its entries"
OTHER_BEGINNING = "its beginning differs from the signed one"
BAD_BEGINNING = "its beginning: "
ILLEGIBLE = "its manifest cannot be read"


@cache
def kept() -> tuple[Event, dict[str, str]]:
    """A result that is stored by its hash, and its text by that."""
    event, blob = extract_blob(ToolReturned(frame="0", call="c1.0", attempt=1, result=BIG))
    assert blob is not None
    return event, {blob.digest: blob.text}


def packed(*events: Event, contents: dict[str, str] | None = None) -> ExportFile:
    entries = tuple(encode_entry(Entry(at=AT, events=(event,))) for event in events)
    now = make_initial_state(RUN)
    for event in events:
        now = step(now, [event], head="", at=AT)
    texts = contents or {}
    signed = export_file.build_manifest(now, entries, texts)
    return ExportFile(key_id="k", signature="00", manifest=signed, entries=entries, contents=texts)


def retold(package: ExportFile, **changes: Any) -> ExportFile:
    return replace(package, manifest=json.dumps({**json.loads(package.manifest), **changes}))


@cache
def leaving() -> ExportFile:
    return packed(*STARTED[:2], LEFT)


@cache
def done() -> ExportFile:
    returned, texts = kept()
    return packed(*STARTED, returned, LEFT, contents=texts)


@cache
def shortened() -> ExportFile:
    """The file of a run that has lost its first entry."""
    whole = leaving()
    start = step(make_initial_state(RUN), STARTED[:1], head="f" * 32, at=AT)
    begun = export_file.encode_beginning(ExportedBeginning(at=AT, state=start))
    now, entries = export_file.check(whole)[1], whole.entries[1:]
    signed = export_file.build_manifest(now, entries, {}, beginning=begun)
    return replace(whole, manifest=signed, entries=entries, beginning=begun)


def begun(at: str | None = None, **changes: Any) -> ExportFile:
    """The shortened file with another beginning, signed."""
    package = shortened()
    document = json.loads(package.beginning)
    state = json.dumps({**json.loads(document["state"]), **changes}, separators=(",", ":"))
    text = json.dumps({"at": at or document["at"], "state": state})
    return retold(replace(package, beginning=text), beginning=hash_text(text))


def brief_beginning(told: str) -> ExportFile:
    """The shortened file with a beginning that leaves parts out."""
    text = shortened().beginning.replace('schema\\":1,', f'schema\\":1,\\"told\\":{told},')
    return retold(replace(shortened(), beginning=text), beginning=hash_text(text))


def with_entries(*entries: str) -> ExportFile:
    package = replace(leaving(), entries=entries)
    return retold(package, entries=export_file.hash_entries(entries))


def test_a_packed_file_reads_back_unchanged() -> None:
    package, (returned, texts) = done(), kept()
    text = export_file.encode(package)
    assert text.startswith('{"format":"signoff.run","key_id":"k","signature":"00","manifest":"{')
    assert export_file.decode(text) == package
    with pytest.raises(Unreadable, match=r"the file is not an exported run$"):
        export_file.decode(text.replace("signoff.run", "other", 1))
    manifest, now = export_file.check(package)
    assert (manifest.schema, manifest.run, manifest.agent) == (1, RUN, "a")
    assert (manifest.requester, manifest.position) == ("ada", len(package.entries))
    assert (manifest.agents, manifest.contents) == ({"a": "f"}, tuple(texts))
    assert manifest.secrets == ()
    assert replace(now, position=0) == fold(make_initial_state(RUN), [*STARTED, returned, LEFT])
    assert now.position == len(package.entries)
    assert export_file.read_signed_entries(package.manifest) == (0, manifest.entries)
    assert export_file.hash_digests([hash_text("one"), hash_text("two")]) == (
        "sha256:fe5c467152b82b990b61225162a0eb26978d79a3cf54fb40f3e42ee67a9f7a81"
    )


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda left, _: replace(left, entries=left.entries[:-1]), OTHER_ENTRIES),
        (lambda left, _: replace(left, entries=left.entries[::-1]), OTHER_ENTRIES),
        (lambda _, done: replace(done, contents={}), OTHER_BLOBS),
        (lambda left, _: replace(left, contents={hash_text("1"): "1"}), OTHER_BLOBS),
        (lambda _, done: replace(done, contents=dict.fromkeys(done.contents, "x")), OTHER_BLOBS),
        (lambda left, _: retold(left, agent="b"), MISFIT),
        (lambda left, _: retold(left, requester="eve"), MISFIT),
        (lambda left, _: retold(left, position=1), MISFIT),
        (lambda left, _: retold(left, agents={"a": "g"}), MISFIT),
        (lambda *_: packed(*STARTED[:2]), "its journal does not end with an export"),
        (lambda *_: packed(*STARTED, LEFT), "one of its calls is running"),
        (lambda *_: packed(*STARTED, kept()[0], LEFT), "it lacks contents that it refers to"),
        (lambda left, _: with_entries(*left.entries[:2], left.entries[1]), "its entry 3: "),
        (lambda *_: replace(shortened(), beginning=""), OTHER_BEGINNING),
        (lambda left, _: replace(left, beginning=shortened().beginning), OTHER_BEGINNING),
        (lambda *_: retold(shortened(), removed=0), MISFIT),
        (lambda *_: begun(position=2), MISFIT),
        (lambda *_: begun(run=str(UUID(int=8))), MISFIT),
        (lambda *_: begun(head="F" * 32), BAD_BEGINNING),
        (lambda *_: begun(position=0), BAD_BEGINNING),
        (lambda *_: begun(position=1 << 53), BAD_BEGINNING),
        (lambda *_: begun("2026-01-01T00:00:00"), BAD_BEGINNING),
        (lambda *_: brief_beginning("{}"), BAD_BEGINNING),
        (lambda *_: brief_beginning("7"), BAD_BEGINNING),
        (lambda *_: begun(frames=7), BAD_BEGINNING),
        (lambda left, _: replace(left, manifest="{}"), ILLEGIBLE),
        (lambda left, _: replace(left, manifest="7"), ILLEGIBLE),
        (lambda left, _: replace(left, manifest='{"schema":"1"}'), ILLEGIBLE),
        (lambda left, _: replace(left, manifest="[" * 100_000), ILLEGIBLE),
    ],
)
def test_a_file_whose_parts_do_not_fit_is_refused(
    change: Callable[[ExportFile, ExportFile], ExportFile], why: str
) -> None:
    package = change(leaving(), done())
    with pytest.raises(Unreadable) as raised:
        export_file.check(package)
    assert str(raised.value).startswith(why)
    if why == ILLEGIBLE:
        assert export_file.read_signed_entries(package.manifest) == (0, "")


def test_a_shortened_file_has_the_state_where_it_begins() -> None:
    package = shortened()
    assert export_file.decode(export_file.encode(package)) == package
    manifest, now = export_file.check(package)
    assert (manifest.schema, manifest.position, manifest.removed) == (1, 3, 1)
    assert export_file.read_signed_entries(package.manifest) == (1, manifest.entries)
    found = export_file.decode_beginning(package)
    assert found is not None
    assert (found.at, found.state.position, found.state.head) == (AT, 1, "f" * 32)
    assert now == export_file.check(leaving())[1]
    sealed = replace(found.state, input={"$secret": "k1:abc"})
    text = export_file.encode_beginning(replace(found, state=sealed))
    signed = json.loads(export_file.build_manifest(now, (), {}, beginning=text))
    assert signed["secrets"] == ["k1"]


def test_a_manifest_of_an_older_schema_is_upcast(monkeypatch: pytest.MonkeyPatch) -> None:
    renamed = {**json.loads(leaving().manifest), "schema": 0}
    renamed["asker"] = renamed.pop("requester")
    package = replace(leaving(), manifest=json.dumps(renamed))
    with pytest.raises(Unreadable):
        export_file.check(package)
    monkeypatch.setitem(UPCASTERS, 0, lambda document: {**document, "requester": document["asker"]})
    assert export_file.check(package)[0].requester == "ada"


def test_a_file_of_a_newer_version_is_refused_as_such() -> None:
    with pytest.raises(NewerSchema) as raised:
        export_file.check(retold(leaving(), schema=SCHEMA + 1, new=True))
    assert raised.value.schema == SCHEMA + 1
    with pytest.raises(NewerSchema):
        export_file.check(with_entries(*leaving().entries[:1], '{"schema":999}'))
    with pytest.raises(NewerSchema):
        export_file.check(begun(schema=999))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is not JSON: "),
        ("[]", "the file is not an exported run"),
        ('{"format":"signoff.run"}', "the file is not an exported run: "),
        ("[" * 100_000, "it is nested too deep"),
    ],
)
def test_a_text_that_is_no_such_file_is_refused(text: str, why: str) -> None:
    with pytest.raises(Unreadable) as raised:
        export_file.decode(text)
    assert str(raised.value).startswith(why)


def test_keys_of_secrets_are_found_at_any_depth() -> None:
    value, other = json.dumps({"$secret": "k1:abc"}), json.dumps({"$secret": "k2:abc"})
    assert export_file.collect_secret_key_ids([json.dumps(json.dumps(value)), other]) == {
        "k1",
        "k2",
    }
    assert (
        export_file.collect_secret_key_ids(['{"secret":"k3:abc"}', '{"$secret":"nothing"}'])
        == set()
    )
