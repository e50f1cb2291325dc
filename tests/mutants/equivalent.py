"""Mutants that behave like the original, each with the reason: (file, its old part, a part of its line)."""

NO_MARK = "no number has a ?"
LAZY = "a whole text fits a pattern that takes as little as it can, too"
TRUTH = "only its truth is asked"

EQUIVALENT = {
    ("transitions", "'S'", "TypeVar"): "the type checker's name alone",
    ("budgets", "'.'", 'rstrip("0").rstrip(".")'): NO_MARK,
    ("budgets", "'0'", '.rstrip("0")'): NO_MARK,
    ("budgets", r"'\\d{1,15}'", r'if re.fullmatch(r"\d{1,15}"'): LAZY,
    ("budgets", r"'\\d{1,15}\\.\\d{1,3}'", 'name == "seconds"'): LAZY,
    ("budgets", r"'\\d{1,12}(\\.\\d+)?'", "isinstance(value, str)"): LAZY,
    ("forks", "return False", ""): TRUTH,
    ("continuations", "return False", ""): TRUTH,
    ("ids", "1", "call[1:].split"): "of the parts only the first is taken",
    ("texts", "1", "text[: MAX_ERROR + 1]"): "a longer text is cut to the same length",
    ("texts", "'utf-8'", "clean.encode"): "Python knows it by this name, too",
    ("json_values", "return False", ""): TRUTH,
    ("json_values", "True", "depth, floats=True"): "the slow check after it decides the same",
    ("export_file", "'json'", "FORMAT, **"): "it is texts, which are the same in any mode",
    ("continuation", "if TYPE_CHECKING:", ""): "dataclasses' own does the same, more slowly",
    (
        "accounting",
        "not limits or not isinstance(effect, CallModel | AnswerInquiry | StartTool)",
        "if not limits",
    ): "both say the same, the second to the type checker",
    ("retries", "60", "MAX_ROUND_SECONDS"): "the longest round is reached long before that",
}
