"""The one line of a bad start."""


def line_of(said: str) -> str:
    """The one line, which is the last; nothing that reads like a traceback comes with it."""
    assert "Traceback" not in said, said
    assert "During handling" not in said, said
    return said.strip().splitlines()[-1]
