"""Mutants that nobody can tell from the original, each with the reason: (text of its line, before, after)."""

EQUIVALENT: dict[tuple[str, str, str], str] = {
    ('S = TypeVar("S", bound=StrEnum)', "'S'", "'S?'"): "the type checker's name alone",
    ('return f"{amount:.3f}".rstrip("0").rstrip(".")', "'.'", "'.?'"): "no number has a ?",
    (
        '{"format": FORMAT, **_PACKAGES.dump_python(package, mode="json")}, separators=(",", ":")',
        "'json'",
        "'json?'",
    ): "it is texts, which are the same in any mode",
}
