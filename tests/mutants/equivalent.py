"""Mutants that behave like the original, each with the reason: (file, text of its line, its old part)."""

NO_MARK = "no number has a ?"
UNREAD = "it is for readers of the code; only which schemas there are is read"
LAZY = "a whole text fits a pattern that takes as little as it can, too"
TRUTH = "only its truth is asked"

EQUIVALENT: dict[tuple[str, str, str], str] = {
    ("transitions", 'S = TypeVar("S", bound=StrEnum)', "'S'"): "the type checker's name alone",
    ("budget_text", 'return f"{amount:.3f}".rstrip("0").rstrip(".")', "'.'"): NO_MARK,
    ("budget_text", 'return f"{amount:.3f}".rstrip("0").rstrip(".")', "'0'"): NO_MARK,
    ("budget_text", 'decimals = f"{rest:06}".rstrip("0").ljust(2, "0")', "'0'"): NO_MARK,
    ("budget_text", r'if re.fullmatch(r"\d{1,15}", text, re.ASCII):', r"'\\d{1,15}'"): LAZY,
    (
        "budget_text",
        r'elif name == "seconds" and re.fullmatch(r"\d{1,15}\.\d{1,3}", text, re.ASCII):',
        r"'\\d{1,15}\\.\\d{1,3}'",
    ): LAZY,
    (
        "budget_text",
        (
            r'text = isinstance(value, str) and not re.fullmatch(r"\d{1,12}(\.\d+)?",'
            " value.strip(), re.ASCII)"
        ),
        r"'\\d{1,12}(\\.\\d+)?'",
    ): LAZY,
    (
        "codec",
        '1: "frames, calls and approval gates",',
        "'frames, calls and approval gates'",
    ): UNREAD,
    ("codec", '2: "gates that hold a whole frame",', "'gates that hold a whole frame'"): UNREAD,
    (
        "codec",
        '3: "messages of people, and calls that wait for a time or an event",',
        "'messages of people, and calls that wait for a time or an event'",
    ): UNREAD,
    ("forks", "return False", "return False"): TRUTH,
    (
        "gates",
        'raise UnknownSubject("open gate", str(event.gate))',
        "raise UnknownSubject('open gate', str(event.gate))",
    ): "`pending.drop` raises the same a moment later",
    ("ids", 'return int(call[1:].split(".", 1)[0])', "1"): "of the parts only the first is taken",
    (
        "limits",
        r'clean = text[: MAX_ERROR + 1].replace("\x00", "\\0")',
        "1",
    ): "a longer text is cut to the same length",
    (
        "limits",
        'clean = clean.encode("utf-8", "backslashreplace").decode()',
        "'utf-8'",
    ): "Python knows it by this name, too",
    (
        "export_file",
        '{"format": FORMAT, **_FILES.dump_python(package, mode="json")}, separators=(",", ":")',
        "'json'",
    ): "it is texts, which are the same in any mode",
    (
        "fast_replace",
        "if TYPE_CHECKING:",
        "if TYPE_CHECKING:",
    ): "that of dataclasses comes to the same, more slowly",
    (
        "budget_accounting",
        "if not limits or not isinstance(effect, CallModel | StartTool):",
        "not limits or not isinstance(effect, CallModel | StartTool)",
    ): "both say the same, the second to the type checker",
    ("active_time", "return False", "return False"): TRUTH,
    ("conversations", "return False", "return False"): TRUTH,
    (
        "retries",
        "bound = min(MAX_ROUND_SECONDS, MIN_ROUND_SECONDS * 2 ** min(rounds, 60))",
        "60",
    ): "the longest round is reached long before that",
}
