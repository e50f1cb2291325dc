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

RETIRED = {
    "Seats?": "run slot",
    "[Cc]oordinator": "runner",
    "[Ss]cribe": "step writer",
    "[Tt]enure": "yield policy",
    "[Hh]andoff|hand_in": "transactional result, submit",
    "poke": "check_signals",
    "Skews?": "version change",
    "Judge|judging": "admission",
    "killpoints?|pass_by": "failpoint, hit",
    "BadSetting": "InvalidSetting",
    "furnish": "set_concurrency",
    "leftovers": "orphans",
    "farewell": "stop signal",
    "unserved": "agents without a worker",
    "narrowed": "filtered",
    "Brakes|Braked": "RateLimits, RateLimited",
    "ModelFault|ToolFault": "ModelFailure, ToolFailure",
    "AgentFacts|CallFacts": "AgentInfo, CallInfo",
    "NotTyped": "InvalidValue",
    "Gatekeeper|gatekeeper": "Approvals, approvals",
    "ActionPicture": "ReviewSnapshot",
    "vouch(?:es|ed)?": "verify_decision",
    "ModelTerms|CompactionTerms|MODEL_TERMS": "ModelOptions, CompactionOptions",
    "BadAmount": "InvalidBudget",
    "HALTS|is_halt|evolve_halt": "FRAME_GATES, is_frame_gate",
    "AskModel|JudgeCall|OpenDoubt": "CallModel, CheckCall, OpenInDoubt",
    "MailboxRaised|TooManyUnheard": "SignalsChanged, TooManyUndelivered",
    "FilledIn|set_aside": "InlinedMessages, extract_blob",
    "NothingToWaitFor|grant_of|limit_gate": "InvalidWait, read_grant, open_limit_gate",
    "OF_RUN|StopNotOn|StoppedAlready": "BLOCKS_RUN, SwitchNotEngaged, SwitchAlreadyEngaged",
    "Sealed|seal_text": "SignedEntry, sign_text",
    "give_back": "release",
    "pause_asked|cancel_asked": "pause_requested, cancel_requested",
    "masked_args|PLACEHOLDER": "redacted_args, REDACTED",
    "Guarded": "LastAdmin",
    "[Rr]oster": "listing",
    "LONG_ENOUGH|LONGEST_(?:PAUSE|ROUND|SEARCH)": "MAX_…_SECONDS",
    "LASTING": "PERMANENT",
    "worked_at|held_up|used_up_at": "active_seconds, is_blocked, exhausted_at",
    "second_look": "recheck",
}
VAGUE = re.compile(
    r"\b(?:whoever|somebody|nobody|anybody|whatever|wherever|whichever"
    r"|what (?:is|was|were|came|it|they|has|had|may|must|can|cannot|becomes|would|happened|happens))\b",
    re.IGNORECASE,
)
ALLOWED = 34
FILES = ("*.py", "*.html", "*.md", "Makefile")
# The history of the words, stored names, and this list itself
EXCEPT = ("CHANGELOG.md", "docs/explanation/adr/*", "*/migrations/*", "tests/docs/words.py")


def main() -> int:
    """Print each retired word with its place, and the vague words if there are more than allowed."""
    retired = re.compile("|".join(rf"(?P<w{n}>\b(?:{old})\b)" for n, old in enumerate(RETIRED)))
    news = list(RETIRED.values())
    wrong, vague = 0, dict[str, int]()
    for path, text in _texts():
        for number, line in enumerate(text.splitlines(), 1):
            for found in retired.finditer(line):
                assert found.lastgroup is not None
                better = news[int(found.lastgroup[1:])]
                say(f"{path}:{number}: {found.group()!r} is retired: {better}")
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


def _texts() -> Iterator[tuple[str, str]]:
    excepted = (f":!{pattern}" for pattern in EXCEPT)
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *FILES, *excepted],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for path in listed.stdout.splitlines():
        if (ROOT / path).is_file():
            yield path, (ROOT / path).read_text("utf-8")


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
