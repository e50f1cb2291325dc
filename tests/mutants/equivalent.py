"""Mutants that nobody can tell from the original, each with the reason: (text of its line, before, after)."""

EQUIVALENT: dict[tuple[str, str, str], str] = {
    ('return f"{amount:.3f}".rstrip("0").rstrip(".")', "'.'", "'.?'"): "no number has a ?",
}
