"""The scripts of the pages are few and small, and obey a strict content security policy."""

import gzip
import re

from config.env.environment import ROOT

LIMIT = 8 * 1024

SCRIPTS = sorted((ROOT / "static" / "js").glob("*.js"))


def test_the_scripts_are_below_8_kilobytes() -> None:
    sizes = {script.name: script.stat().st_size for script in SCRIPTS}
    assert max(sizes.values()) <= LIMIT, sizes
    assert len(gzip.compress(b"".join(script.read_bytes() for script in SCRIPTS))) <= LIMIT


def test_no_script_makes_code_or_markup_of_text() -> None:
    refused = re.compile(r"\beval\(|new Function|insertAdjacentHTML|innerHTML\s*=|document\.write")
    for script in SCRIPTS:
        assert refused.search(script.read_text()) is None, script.name
