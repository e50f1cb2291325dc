"""Prompts as YAML files, and the command that imports, exports and activates them."""

from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from agents.sdk import prompt
from approvals.governance import prompt_list
from approvals.governance.prompt_list import PromptText
from approvals.governance.prompt_versions import LOG
from runtime.errors import InvalidInput
from tests.support.released import released
from tests.support.seeds import Cast
from tests.support.specs import spec_of

NAME = "shop/desk"


def prompts(*words: str) -> str:
    out = StringIO()
    call_command("prompts", *words, stdout=out)
    return out.getvalue()


def test_a_version_is_reviewed_in_git_and_activated(cast: Cast, tmp_path: Path) -> None:
    LOG.forget()
    released(spec_of("desk", instructions=prompt(NAME, "Serve {name}.\nBe kind: always.")))
    file = tmp_path / "desk.yaml"
    file.write_text(prompts("export", NAME))
    assert file.read_text() == ("prompt: shop/desk\ntext: |\n  Serve {name}.\n  Be kind: always.\n")
    file.write_text(file.read_text().replace("kind", "quick") + "note: Sooner\n")
    for _ in range(2):  # the same text again is no new version
        assert prompts("import", str(file)) == "Version 1 of shop/desk is saved.\n"
    assert prompts("activate", NAME, "1") == "Version 1 is in production.\n"
    prompts("label", NAME, "1", "staging")
    told = prompts("list")
    assert told.startswith("shop/desk\tversion 1 in production\tused by desk\n  1\t")
    assert told.endswith("by the command line\tproduction, staging\n")
    assert prompt_list.read_file(prompts("export", NAME)).note == "Sooner"
    assert prompts("propose", NAME, "0") == "The text in the code is proposed for production.\n"
    assert prompts("activate", NAME, "0") == "The text in the code is in production.\n"
    assert "the text in the code in production" in prompts("list")
    file.write_text("prompt: shop/desk\ntext: Serve.")
    with pytest.raises(CommandError, match=r"text lacks the variable \{name\}"):
        prompts("import", str(file))
    with pytest.raises(CommandError, match="cannot be read"):
        prompts("import", str(tmp_path / "none.yaml"))


@pytest.mark.parametrize(
    ("text", "field", "why"),
    [
        ("", "file", "must have the fields prompt, note, text"),
        ("- a", "file", "must have the fields"),
        ("a: [", "file", "line 1: is not valid YAML"),
        ("prompt: a\0", "file", "is not valid YAML"),
        ("x" * (prompt_list.MAX_FILE + 1), "file", "at most 262144 are allowed"),
        ("\n" + "[" * 50_000, "file", "line 2: is nested deeper than 64"),
        ("prompt: a\ntext: x\nmodel: y", "file", "has the field model"),
        ("prompt: a\ntext: x\ntext: y", "text", "is there twice"),
        ("prompt: a", "text", "is required"),
        ("text: a", "prompt", "is required"),
        ("prompt: a\ntext: 12", "text", "must be a text, line 2"),
        ("prompt: a\ntext: [x]", "text", "must be a text, line 2"),
        ("prompt: a\ntext: !!python/object/apply:os.getcwd []", "file", "line 2: tags, anchors"),
    ],
)
def test_a_wrong_file_is_refused_naming_its_field(text: str, field: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=why) as refused:
        prompt_list.read_file(text)
    assert refused.value.field == field


def test_any_text_comes_back_as_it_was() -> None:
    for text in (
        "one: line",
        "- a\n\n  b\n# c",
        "tab\there\nand",
        "'q' \"r\" \\ \u2028 é\nx",
        "12",
        "{a}",
    ):
        written = prompt_list.write_file(NAME, PromptText(number=1, text=text, note="12"))
        found = prompt_list.read_file(written)
        assert (found.prompt, found.text.removesuffix("\n"), found.note) == (NAME, text, "12")
