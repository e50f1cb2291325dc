"""The scripts of the pages make no code or markup of text."""

import re

from config.env.environment import ROOT


def test_no_script_makes_code_or_markup_of_text() -> None:
    refused = re.compile(r"\beval\(|new Function|insertAdjacentHTML|innerHTML\s*=|document\.write")
    for script in (ROOT / "static" / "js").glob("*.js"):
        assert refused.search(script.read_text()) is None, script.name
