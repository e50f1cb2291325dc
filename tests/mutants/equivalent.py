"""Mutants that nobody can tell from the original, each with the reason: (module, before, after)."""

EQUIVALENT: dict[tuple[str, str, str], str] = {}
