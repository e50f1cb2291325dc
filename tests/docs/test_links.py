"""The pages of the docs: links, promises with their tests, and scripts."""

import re
from collections import Counter
from pathlib import Path

import pytest

from config.env.environment import ROOT
from config.local.app_environment import HR, INVOICES
from tests.docs import guarantees
from tests.docs.pages import PAGES, ROOT_PAGES, functions_of
from tests.docs.screenshots import IMAGES, PICTURES

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


@pages
def test_a_command_that_adds_agents_keeps_the_whole_demonstration(page: Path) -> None:
    """Or its invoices, approved later, wait for a worker that has their agent."""
    for modules in re.findall(r"\bSIGNOFF_AGENTS=(\S+)", _code(page)):
        assert HR not in modules.split(",") or INVOICES in modules.split(",")


def _is_there(name: str) -> bool:
    """A package, a module, or something in one; a log's or a port's name is one as well."""
    place = ROOT.joinpath(*name.split("."))
    files = [place.parent.with_suffix(".py"), place.parent / "__init__.py"]
    texts = [file.read_text("utf-8") for file in files if file.exists()]
    return _is_file(str(place)) or any(place.name in text for text in texts)


def _is_file(path: str) -> bool:
    """A file or folder, also without its suffix."""
    plain = path.rstrip("./")
    return any((ROOT / f"{plain}{suffix}").exists() for suffix in ("", ".py", ".md"))


def test_the_pictures_are_those_of_the_script_and_small() -> None:
    sizes = {path.name: path.stat().st_size for path in IMAGES.glob("*.png")}
    assert set(sizes) == {f"{picture.name}.png" for picture in PICTURES}
    assert max(sizes.values()) <= 200 * 1024


def test_index_names_every_page() -> None:
    index = ROOT / "docs" / "README.md"
    targets = re.findall(r"\]\(([^)#]+)\)", index.read_text("utf-8"))
    adrs = index.with_name("explanation") / "adr"
    pages = {page for page in PAGES if page not in (*ROOT_PAGES, index) and page.parent != adrs}
    named = {(index.parent / target).resolve() for target in targets}
    assert named - set(ROOT_PAGES) == pages | {adrs}


# Promises


NAMED = re.compile(r"(tests/[\w/]+\.py)::(test_\w+)")


def test_every_promise_has_tests_of_its_own() -> None:
    rows = list(guarantees.promises())
    assert [promise for promise, tests in rows if not tests] == []
    promises = Counter(promise for promise, _ in rows)
    tests = Counter(str(tests) for promise, tests in rows if promise not in _bugs())
    assert [text for text, number in (promises | tests).items() if number > 1] == []


def test_every_test_of_the_table_exists() -> None:
    rows = [test for _, tests in guarantees.promises() for test in tests]
    assert [test for test in rows if not NAMED.fullmatch(test)] == []
    assert _missing(" ".join(rows)) == []


def test_every_test_of_their_readme_exists() -> None:
    assert _missing((ROOT / "tests/README.md").read_text("utf-8")) == []


@pytest.mark.parametrize("name", guarantees.PAGES)
def test_page_lists_the_promises_of_the_table(name: str) -> None:
    page = (guarantees.EXPLANATION / name).read_text("utf-8")
    assert page == guarantees.PAGES[name](), "run `make reference` (python -m tests.docs.reference)"


def _bugs() -> set[str]:
    """Return the bugs of others: one test may show that several cannot happen here."""
    return set(guarantees.read_table()["bugs"][""])


def _missing(text: str) -> list[str]:
    return [
        f"{path}::{name}" for path, name in NAMED.findall(text) if name not in functions_of(path)
    ]


# Scripts


DECLARED = re.compile(
    r"^(?:const|let|class|(?:async )?function) (?:\{([^}]*)\}|(\w+))", re.MULTILINE
)


def test_no_name_is_declared_twice_in_the_scripts() -> None:
    texts = (path.read_text(encoding="utf-8") for path in (ROOT / "static/js").glob("*.js"))
    found = [found for text in texts for found in DECLARED.findall(text)]
    names = [name.strip() for several, one in found for name in (one or several).split(",")]
    assert [name for name, number in Counter(names).items() if number > 1] == []
