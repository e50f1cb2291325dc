"""Refuses retired words and counts vague ones: `python -m tests.docs.words`, a part of `make check`.

A retired word was a name of our own for something that has a name in the field; it stays out of code, pages and docs.
A vague word hides the actor ("somebody") or stands where a noun would ("what is due" for due runs). The number of
vague words may only fall: when you lower it, lower ALLOWED too.
"""

import re
import subprocess
import sys
from collections.abc import Iterator

from config.env.environment import ROOT

RETIRED = re.compile(
    r"\b(?:Seats?|[Cc]oordinator|[Ss]cribe|[Tt]enure|[Hh]andoff|hand_in|poke|Skews?|"
    r"Judge|judging|killpoints?|pass_by|BadSetting|furnish|leftovers|farewell|unserved|"
    r"narrowed|Brakes|Braked|ModelFault|ToolFault|AgentFacts|CallFacts|NotTyped|"
    r"Gatekeeper|gatekeeper|ActionPicture|vouch(?:es|ed)?|"
    r"ModelTerms|CompactionTerms|MODEL_TERMS|BadAmount|HALTS|is_halt|evolve_halt|"
    r"AskModel|JudgeCall|OpenDoubt|MailboxRaised|TooManyUnheard|FilledIn|set_aside|"
    r"NothingToWaitFor|grant_of|limit_gate|OF_RUN|StopNotOn|StoppedAlready|Sealed|seal_text|"
    r"give_back|pause_asked|cancel_asked|masked_args|PLACEHOLDER|Guarded|[Rr]oster|"
    r"LONG_ENOUGH|LONGEST_(?:PAUSE|ROUND|SEARCH)|LASTING|worked_at|held_up|used_up_at|"
    r"second_look)\b"
)
VAGUE = re.compile(
    r"\b(?:whoever|somebody|nobody|anybody|whatever|wherever|whichever"
    r"|what (?:is|was|were|came|it|they|has|had|may|must|can|cannot|becomes|would|happened|happens))\b",
    re.IGNORECASE,
)
ALLOWED = 30
FILES = ("*.py", "*.html", "*.md", "Makefile")
# History, stored names, and this list itself
WORDS = "docs/reference/glossary.md"
EXCEPT = ("CHANGELOG.md", "docs/explanation/adr/*", "*/migrations/*", "tests/docs/words.py")


def main() -> int:
    """Print each retired word with its place, and the vague words if there are more than allowed."""
    wrong, vague = 0, dict[str, int]()
    for path, text in read_files(*FILES, *(f":!{pattern}" for pattern in EXCEPT)):
        for number, line in enumerate(text.splitlines(), 1):
            for found in RETIRED.findall(line):
                say(f"{path}:{number}: {found!r} is retired: see {WORDS}")
                wrong += 1
        if many := len(VAGUE.findall(text)):
            vague[path] = many
    total = sum(vague.values())
    if total > ALLOWED:
        for path, many in sorted(vague.items(), key=lambda item: -item[1]):
            say(f"{many:4} {path}")
        say(f"{total} vague words, {ALLOWED} are allowed: name the actor, or use a noun")
    elif total < ALLOWED:
        say(f"{total} vague words: set ALLOWED in tests/docs/words.py to that")
    return int(wrong > 0 or total > ALLOWED)


def read_files(*patterns: str) -> Iterator[tuple[str, str]]:
    """Return the path and the text of the repository's files that match these patterns of git."""
    for path in list_files(*patterns):
        yield path, (ROOT / path).read_text("utf-8")


def list_files(*patterns: str) -> list[str]:
    """Return the paths of the repository's files that match, also of files that are not added yet."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [path for path in listing.stdout.splitlines() if (ROOT / path).is_file()]


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
