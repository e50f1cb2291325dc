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
RETURNED, STORED = extract_blob(ToolReturned(frame="0", call="c1.0", attempt=1, result=BIG))
assert STORED is not None
TEXTS = {STORED.digest: STORED.text}


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


def with_entries(*entries: str) -> ExportFile:
    package = replace(LEAVING, entries=entries)
    return retold(package, entries=export_file.digest_of_entries(entries))


LEAVING = packed(*STARTED[:2], LEFT)
DONE = packed(*STARTED, RETURNED, LEFT, contents=TEXTS)
OTHER_ENTRIES = "its entries differ from the signed ones"
OTHER_BLOBS = "its contents differ from the signed ones"
MISFIT = "its manifest does not fit its entries"
ILLEGIBLE = "its manifest cannot be read"


def test_a_packed_file_reads_back_unchanged() -> None:
    text = export_file.encode(DONE)
    assert text.startswith('{"format":"abeyance.run","key_id":"k","signature":"00","manifest":"{')
    assert export_file.decode(text) == DONE
    manifest, now = export_file.check(DONE)
    assert (manifest.schema, manifest.run, manifest.agent) == (1, RUN, "a")
    assert (manifest.requester, manifest.position) == ("ada", len(DONE.entries))
    assert (manifest.agents, manifest.contents) == ({"a": "f"}, tuple(TEXTS))
    assert manifest.secrets == ()
    assert replace(now, position=0) == fold(initial(RUN), [*STARTED, RETURNED, LEFT])
    assert now.position == len(DONE.entries)
    assert export_file.entries_signed(DONE.manifest) == manifest.entries
    assert export_file.digest_of_digests([digest_of("one"), digest_of("two")]) == (
        "sha256:fe5c467152b82b990b61225162a0eb26978d79a3cf54fb40f3e42ee67a9f7a81"
    )


@pytest.mark.parametrize(
    ("package", "why"),
    [
        (replace(LEAVING, entries=LEAVING.entries[:-1]), OTHER_ENTRIES),
        (replace(LEAVING, entries=LEAVING.entries[::-1]), OTHER_ENTRIES),
        (replace(DONE, contents={}), OTHER_BLOBS),
        (replace(DONE, contents={**TEXTS, digest_of("1"): "1"}), OTHER_BLOBS),
        (replace(DONE, contents=dict.fromkeys(TEXTS, "other")), OTHER_BLOBS),
        (retold(LEAVING, agent="b"), MISFIT),
        (retold(LEAVING, requester="eve"), MISFIT),
        (retold(LEAVING, position=1), MISFIT),
        (retold(LEAVING, agents={"a": "g"}), MISFIT),
        (packed(*STARTED[:2]), "its journal does not end with an export"),
        (packed(*STARTED, LEFT), "one of its calls is running"),
        (packed(*STARTED, RETURNED, LEFT), "it lacks contents that it refers to"),
        (with_entries(*LEAVING.entries[:2], LEAVING.entries[1]), "its entry 3: "),
        (replace(LEAVING, manifest="{}"), ILLEGIBLE),
        (replace(LEAVING, manifest="7"), ILLEGIBLE),
        (replace(LEAVING, manifest='{"schema":"1"}'), ILLEGIBLE),
        (replace(LEAVING, manifest="[" * 100_000), ILLEGIBLE),
    ],
)
def test_a_file_whose_parts_do_not_fit_is_refused(package: ExportFile, why: str) -> None:
    with pytest.raises(Unreadable) as raised:
        export_file.check(package)
    assert str(raised.value).startswith(why)
    if why == ILLEGIBLE:
        assert export_file.entries_signed(package.manifest) == ""


def test_a_file_of_a_newer_version_is_refused_as_such() -> None:
    with pytest.raises(NewerSchema) as raised:
        export_file.check(retold(LEAVING, schema=export_file.SCHEMA + 1, new=True))
    assert raised.value.schema == export_file.SCHEMA + 1
    with pytest.raises(NewerSchema):
        export_file.check(with_entries(*LEAVING.entries[:1], '{"schema":999}'))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is not JSON: "),
        ("[]", "it is no exported run"),
        (export_file.encode(LEAVING).replace("abeyance.run", "other"), "it is no exported run"),
        ('{"format":"abeyance.run"}', "it is no exported run: "),
        ("[" * 100_000, "it is nested too deep"),
    ],
)
def test_a_text_that_is_no_such_file_is_refused(text: str, why: str) -> None:
    with pytest.raises(Unreadable) as raised:
        export_file.decode(text)
    assert str(raised.value).startswith(why)


def test_keys_of_secrets_are_found_at_any_depth() -> None:
    value, other = json.dumps({"$secret": "k1:abc"}), json.dumps({"$secret": "k2:abc"})
    assert export_file.secret_key_ids([json.dumps(json.dumps(value)), other]) == {"k1", "k2"}
    assert export_file.secret_key_ids(['{"secret":"k3:abc"}', '{"$secret":"nothing"}']) == set()
