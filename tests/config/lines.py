"""Finds the one line of a failed start."""


def line_of(said: str) -> str:
    """Return the last line of the output, which must contain no traceback."""
    assert "Traceback" not in said, said
    assert "During handling" not in said, said
    return said.strip().splitlines()[-1]
