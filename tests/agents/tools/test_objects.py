"""Objects of agents in a folder and in a bucket of an S3 server: only below the prefix, and never over another text."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from agents.errors import DefinitionError, NotDone, ToolError
from agents.sdk import agent
from agents.sdk.scripts import call, say
from agents.sdk.spec import AgentSpec, ToolSpec
from agents.testing import drive
from agents.tools import objects
from agents.tools.objects import MAX_TEXT, OWN, read_object, write_object
from runtime.ports.objects import ObjectStore
from runtime.store.object_stores.stores import open_store
from tests.agents.conftest import context
from tests.support.object_stores import BOTH, Breakable
from tests.support.threads import together

KEY = "2026/q1.txt"
A, B = objects._compute_digest(b"a"), objects._compute_digest(b"b")


class Nothing(BaseModel):
    pass


def writer(**given: Any) -> AgentSpec:
    tools = [read_object("reports", **given), write_object("reports", **given)]
    return agent(
        name="writer", description="Writes.", instructions="Write.", input=Nothing, tools=tools
    )


def write(text: str, expected: str | None = None, key: str = KEY) -> Any:
    return call("write_object", key=key, text=text, expected=expected)


@BOTH
def test_a_text_is_read_and_replaced_after_its_approval(object_store: Breakable) -> None:
    model = [
        call("read_object", key=KEY),
        write("a"),
        call("read_object", key=KEY),
        write("b", A),
        lambda turn: say(str([result.content for result in turn.results])),
    ]
    run = drive(writer(), {}, model=model)
    assert (run.gate.sentence, run.gate.effect) == ("Write tools/reports/2026/q1.txt", "idempotent")
    assert (run.gate.preview or {})["shown"]["summary"] == "Writes a new text (1 bytes)"
    run.approve()
    assert (run.gate.preview or {})["shown"]["changes"] == [
        {"what": "text", "before": "a", "after": "b"}
    ]
    run.approve()
    assert object_store.get(f"{OWN}/reports/{KEY}") == b"b"
    assert f"'exists': True, 'text': 'a', 'digest': '{A}'" in run.output
    assert "'exists': False, 'text': None, 'digest': None" in run.output


@pytest.mark.parametrize(
    "crash", [{"crash_after": ["write_object"]}, {"crash_before": ["write_object"]}]
)
def test_a_write_whose_worker_died_is_repeated_without_effect(
    object_store: Breakable, crash: dict[str, Any]
) -> None:
    run = drive(writer(), {}, model=[write("a"), say("done")], **crash).approve()
    assert (run.output, run.calls[-1].attempt) == ("done", 2)
    assert object_store.get(f"{OWN}/reports/{KEY}") == b"a"


@pytest.mark.parametrize(
    ("text", "expected", "said"),
    [
        ("b", None, "exists: read it"),
        ("b", B, "has another text: read it again"),
        ("é" * (MAX_TEXT // 2 + 1), A, f"at most {MAX_TEXT} are written"),
    ],
)
def test_no_person_is_asked_about_a_write_that_cannot_be_made(
    object_store: Breakable, text: str, expected: str | None, said: str
) -> None:
    object_store.put(f"{OWN}/reports/{KEY}", b"a")
    run = drive(writer(), {}, model=[write(text, expected), say("done")])
    assert (run.gates, run.output) == ((), "done")
    assert any(said in line for line in run.transcript)


def test_a_text_that_changes_while_a_person_decides_is_not_replaced(
    object_store: Breakable,
) -> None:
    run = drive(writer(), {}, model=[write("b"), say("done")])
    object_store.put(f"{OWN}/reports/{KEY}", b"another")
    assert run.approve().output == "done"
    assert object_store.get(f"{OWN}/reports/{KEY}") == b"another"


@BOTH
def test_of_writers_at_once_one_succeeds(object_store: Breakable) -> None:
    tool = write_object("reports")
    done: list[dict[str, Any]] = []
    refused: list[str] = []

    def one(text: str) -> Callable[[], None]:
        def act() -> None:
            try:
                done.append(tool(context(), key=KEY, text=text, expected=None))
            except ToolError as exc:
                refused.append(str(exc))

        return act

    together([one(f"text {n}") for n in range(6)])
    (winner,) = done
    assert all("another writer" in one or "exists" in one for one in refused)
    assert winner["digest"] == objects._compute_digest(object_store.get(f"{OWN}/reports/{KEY}"))


def test_another_attempt_that_was_faster_has_written_it(
    object_store: Breakable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_late(key: str, data: bytes, **_: Any) -> bool:
        object_store.put(key, data)
        return False

    monkeypatch.setattr(object_store, "swap", too_late)
    assert write_object("in")(context(), key="x", text="a", expected=None)["digest"] == A


@pytest.mark.parametrize(
    "key", ["", "..", "../x", "a/../../x", "/etc/passwd", "a//b", "a\n", ".hidden", "x" * 301]
)
def test_a_key_stays_below_its_prefix(object_store: Breakable, key: str) -> None:
    run = drive(
        writer(), {}, model=[write("a", key=key), call("read_object", key=key), say("done")]
    )
    assert (run.gates, run.output, object_store.keys()) == ((), "done", [])


def test_a_link_in_the_folder_of_an_author_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "store" / "reports").mkdir(parents=True)
    (tmp_path / "store" / "reports" / "up").symlink_to(tmp_path)
    store = str(tmp_path / "store")
    with pytest.raises(ToolError, match="up is a link"):
        read_object("reports", store=store)(context(), key="up/secret")
    with pytest.raises(ToolError, match="up is a link"):
        write_object("reports", store=store)(context(), key="up/new", text="a", expected=None)
    assert {path.name for path in tmp_path.iterdir()} == {"secret", "store"}


@pytest.mark.parametrize("kind", ["folder", "s3"])
def test_a_store_of_others_needs_no_mark(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    address = request.getfixturevalue("bucket") if kind == "s3" else str(tmp_path)
    reads, writes = read_object("in", store=address), write_object("in", store=address)
    assert reads(context(), key="x")["exists"] is False
    writes(context(), key="x", text="a", expected=None)
    assert reads(context(), key="x")["text"] == "a"
    others: ObjectStore = open_store(address, marked=False)
    others.put("in/large", b"x" * (MAX_TEXT + 1))
    others.put("in/binary", b"\xff")
    for key, said in (("large", f"at most {MAX_TEXT} are read"), ("binary", "not a text in UTF-8")):
        with pytest.raises(ToolError, match=said):
            reads(context(), key=key)
    with pytest.raises(ToolError, match=r"key: .*at most"):
        writes(context(), key="large", text="a", expected=A)


def test_a_store_that_is_down_or_missing_is_tried_again_or_named(object_store: Breakable) -> None:
    object_store.is_down = True
    with pytest.raises(NotDone, match="does not answer") as down:
        read_object("in")(context(), key="x")
    assert down.value.cause == "network"
    with pytest.raises(ConnectionError, match="does not answer"):
        write_object("in")(context(), key="x", text="a", expected=None)


def test_without_a_store_the_setting_is_named() -> None:
    with pytest.raises(NotDone, match="SIGNOFF_OBJECT_STORE") as missing:
        read_object("in")(context(), key="x")
    assert missing.value.cause == "setup"


@pytest.mark.parametrize("make", [read_object, write_object])
@pytest.mark.parametrize(
    ("prefix", "store"),
    [("", None), ("../x", None), ("/x", None), ("a/", None), ("a", "ftp://x"), ("a", "relative"),
     ("a", "s3://key:secret@bucket"), ("a", "/srv/../etc"), ("a", "s3://b?x=1")],
)  # fmt: skip
def test_the_author_s_place_is_checked(
    make: Callable[..., ToolSpec], prefix: str, store: str | None
) -> None:
    with pytest.raises(DefinitionError, match=r"tool .*: (prefix|store): "):
        make(prefix, store=store)
