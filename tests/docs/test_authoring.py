"""Every block of Python in the pages for authors, put into the files they name and run as an author would.

The agent that `make new-agent` writes runs beside them.
"""

import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

from config.env.environment import ROOT
from tests.docs.pages import blocks
from tests.support import commands

DOCS = ROOT / "docs"
PAGES = (
    DOCS / "tutorial/first-agent.md",
    DOCS / "how-to/write-tools.md",
    DOCS / "how-to/write-agents.md",
    DOCS / "how-to/test-agents.md",
    Path(__file__).with_name("examples.md"),
)
RUN_ELSEWHERE = {
    DOCS / "how-to/use-from-scripts.md",  # tests/client/test_how_to.py
    DOCS / "how-to/notify-people.md",  # tests/web/accounts/test_notices.py
    DOCS / "how-to/send-webhooks.md",  # tests/web/test_subscriptions.py
    DOCS / "how-to/approve-existing-agents.md",  # tests/interop/test_how_to.py
}
BLOCKS = [block for page in PAGES for block in blocks(page, "python")]


def test_every_block_runs(tmp_path: Path, postgres_url: str) -> None:
    """As `make test TESTS=folder` runs them, with nothing but the database in the environment."""
    folder = tmp_path / "not" / "yet"
    _make("new-agent", "NAME=leaflets", f"AGENTS_DIR={folder}")
    for block in BLOCKS:
        first, rest = block.text.split("\n", 1)
        name = re.fullmatch(r"# ([a-z_]+\.py)", first)
        assert name is not None, f"a block names no file: {first}"
        with (folder / name[1]).open("a", encoding="utf-8") as file:
            file.write(f"{rest}\n")
    written = 2 + sum(block.text.count("\ndef test_") for block in BLOCKS)
    assert written > 10
    # Another database of the same server, since this one's name is taken by these tests
    url = urlsplit(postgres_url)._replace(path="/authoring").geturl()
    done = _pytest(folder, DATABASE_URL=url)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert f"{written} passed" in done.stdout
    (folder / "conftest.py").unlink()  # without the plugin and a database
    tests = folder / "test_alone.py"
    tests.write_text(
        "from agents.testing import drive\n"
        "from shop import refunds\n"
        "def test_it_waits():\n"
        "    assert drive(refunds, {'number': 'A-1'}).status == 'suspended'\n"
    )
    done = _pytest(tests)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]


def _make(*words: str) -> None:
    """Run a target without its first one, which would install packages."""
    subprocess.run(
        ["make", "-o", "environment", f"RUN={sys.executable}", *words],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"]},
        check=True,
        stdout=subprocess.DEVNULL,
    )


def _pytest(tests: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    variables |= {"PATH": os.environ["PATH"], "HOME": str(tests)}
    words = ("-m", "pytest", tests, "-q", "-p", "no:cacheprovider")
    return commands.python(*words, env=variables)


def test_no_other_page_for_authors_has_python() -> None:
    others = set(DOCS.glob("[th]*/*.md")) - set(PAGES) - RUN_ELSEWHERE
    assert [page.name for page in others if blocks(page, "python")] == []
