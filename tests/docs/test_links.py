"""What README and docs point at is there: files, headings, make targets, modules, commands."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from config.env.environment import ROOT
from tests.docs.pages import PAGES, README
from tests.docs.screenshots import MAX_BYTES, PICTURES

LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`|^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TARGET = re.compile(r"\bmake ([a-z][a-z-]*)")
PATH = re.compile(
    r"(?:agents|approvals|config|runtime|tests|docs|templates|static|requirements)/[\w/.-]*"
)
MODULE = re.compile(r"(?<![\w/.])(?:agents|approvals|config|runtime)(?:\.(?!txt|yml|log)[a-z_]+)+")
COMMAND = re.compile(r"manage\.py ([a-z_]+)")
DJANGO = ("migrate", "shell", "check", "dumpdata", "loaddata")

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def _code(page: Path) -> str:
    text = page.read_text("utf-8")
    return "\n".join(inline or block for inline, block in CODE.findall(text))


def _anchors(page: Path) -> set[str]:
    """The names of a page's headings, as forges make them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pages
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    for match in LINK.finditer(page.read_text("utf-8")):
        target, _, anchor = match["target"].partition("#")
        if "://" in target:
            continue
        found = (page.parent / target).resolve() if target else page
        assert found.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in _anchors(found), f"{page.name} links to {target}#{anchor}"


@pages
def test_every_target_command_module_and_file_exists(page: Path) -> None:
    code, rules = _code(page), (ROOT / "Makefile").read_text("utf-8")
    assert set(TARGET.findall(code)) <= set(re.findall(r"^([a-z][a-z-]*):", rules, re.MULTILINE))
    commands = {file.stem for file in ROOT.glob("*/management/commands/*.py")}
    assert set(COMMAND.findall(code)) <= commands | set(DJANGO)
    missing = [name for name in MODULE.findall(code) if not _is_there(name)]
    missing += [path for path in PATH.findall(code) if not _is_file(path)]
    assert missing == []


def _is_there(name: str) -> bool:
    """A module, or something in one; a log's or a port's name is one as well."""
    head, _, last = name.rpartition(".")
    try:
        if find_spec(name) is not None:
            return True
    except ModuleNotFoundError:
        pass
    source = ROOT.joinpath(*head.split("."))
    files = [source.with_suffix(".py"), source / "__init__.py"]
    return any(last in file.read_text("utf-8") for file in files if file.exists())


def _is_file(path: str) -> bool:
    """A file or folder, also without its suffix."""
    plain = path.rstrip("./")
    return any((ROOT / f"{plain}{suffix}").exists() for suffix in ("", ".py", ".md"))


def test_the_pictures_are_those_of_the_script_and_small() -> None:
    pictures = {path.name: path for path in (ROOT / "docs" / "img").glob("*.png")}
    assert set(pictures) == {f"{picture.name}.png" for picture in PICTURES}
    assert {name for name, path in pictures.items() if path.stat().st_size > MAX_BYTES} == set()


DOCS = ROOT / "docs"
INDEX = DOCS / "README.md"


def test_index_names_every_page() -> None:
    linked = {
        (DOCS / target).resolve()
        for target in re.findall(r"\]\(([^)#]+)\)", INDEX.read_text("utf-8"))
    }
    adrs = DOCS / "explanation" / "adr"
    pages = {page for page in PAGES if page not in (README, INDEX) and page.parent != adrs}
    assert linked == pages | {adrs}
