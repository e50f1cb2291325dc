"""The scripts of a page share one scope: a name that two of them declare stops the second one whole."""

import re
from collections import Counter

from config.env.environment import ROOT

DECLARED = re.compile(
    r"^(?:const|let|class|(?:async )?function) (?:\{([^}]*)\}|(\w+))", re.MULTILINE
)


def test_no_name_is_declared_twice_in_the_scripts() -> None:
    texts = (path.read_text(encoding="utf-8") for path in (ROOT / "static/js").glob("*.js"))
    found = [found for text in texts for found in DECLARED.findall(text)]
    names = [name.strip() for several, one in found for name in (one or several).split(",")]
    assert [name for name, number in Counter(names).items() if number > 1] == []
