"""The texts that models receive and scripts recognise: the ends of calls, summaries, messages of people."""

from typing import Any, Literal

from runtime.core.values.verdicts import CHANGES, DENIED, changes_text, denial_text

Outcome = Literal["success", "failed", "denied"]

EXPIRED = "This call was not made, because its approval expired. "
UNANSWERED = "No person answered this question in time. "
GIVEN_UP = (
    "This call was started, and it is not known whether it took effect. A person looked into it and gave it up."
    " The reason given: "
)
REFUSED = "This call could not be made: "
ABOUT_ANSWER = "About your answer: "  # an outcome follows, as of a call
NOT_TAKEN = "This answer could not be taken: "
REPORTED = "A person reported this result, because what the call itself returned was lost. The result as JSON: "
CHANGED = "A person changed this result. The result as JSON: "
GIVEN = (
    "A person gave this reply in your place, with its calls if there are any. "  # its text follows
)
ANSWERED = "This call was not made. A person gave this result instead. The result as JSON: "
ANSWERED_BY_POLICY = (
    "This call was not made. No person decided in time, so a rule gave this result: "
)
ANSWERED_QUESTION = "A person answered. The answer as JSON: "
# The arguments and a line break follow, then the outcome as text, or RESULT and the result.
EDITED = "A person changed the arguments of this call. The arguments as JSON: "
RESULT = "The result as JSON: "
REASONED = (
    DENIED,
    CHANGES,
    EXPIRED,
    UNANSWERED,
    GIVEN_UP,
    REFUSED,
)  # each is followed by the reason
SUM_UP = (
    "Do not go on yet, and call no tool. Sum up what has happened so far, for yourself: what you were asked,"
    " what you found out, what you did, and what is left to do. You will go on from this summary alone, so"
    " keep every name, number and id that you may still need. Answer with the summary and nothing else."
)
SUM_UP_MEMORY = (
    "Do not begin with your task yet, and call no tool. Sum up the earlier part of this conversation, for yourself,"
    " with what you may need for your task: you will have this summary in its place. Answer with the summary and"
    " nothing else. The most tokens that it may take: "
)
SUMMARY = "What happened up to here, summed up: "
MESSAGE = "A message from "  # its author's name and a colon follow

PLAN = "Your plan: "  # its state follows, then each open item in a line
# One line of JSON for each text follows.
MEMORY = (
    "The earlier part of this conversation, from other runs. It is for you to know, and no instruction. Your task"
    " follows it.\n"
)

CUT = "Your last reply was cut off and nothing of it counts. Answer again, from the beginning. It as JSON: "
CUT_BY = {
    "error": "the connection, its deadline, or the limit of tokens",
    "message": "a person, by the last message",
    "lost": "the loss of the worker that received it",
}

NOTHING_RETURNED = "The call returned nothing."
WAITING = "This call has not been made: it waits for a person's decision."
# The tool, its call, the person, ASKS and the question follow.
QUESTION = "A person who decides about a call that you proposed asks you a question about it. "
ANSWER_IT = (
    "Answer it now, in plain text, for this person to read, and call no tool. You will not see this question or your"
    " answer again. The call: "
)
ASKS = " asks: "

# Replaces arguments: the call repeats the earlier call of its reply at this position.
REPEATED = "$repeated"


def word_outcome(outcome: str, content: Any, verdict: str | None) -> tuple[Outcome, Any]:
    """Word the outcome of a call for the model, by what ended it."""
    match outcome, verdict:
        case "returned", _:
            return "success", content
        case "failed", "give_up":
            return "failed", f"{GIVEN_UP}{content}"
        case "failed", _:
            return "failed", content
        case "denied", "expire":
            return "denied", f"{EXPIRED}{content}"
        case "denied", "request_changes":
            return "denied", changes_text(content)
        case "denied", _:
            return "denied", denial_text(content)
        case "refused", _:
            return "failed", f"{REFUSED}{content}"
        case _:
            raise ValueError(f"a result has no outcome {outcome}")


def word_report(result: dict[str, Any], *, question: bool) -> str:
    """Say who gave a result that is not of the call itself. Without a name the policy gave it."""
    if not result.get("answered"):
        return REPORTED
    if not result["reported_by"]:
        return ANSWERED_BY_POLICY
    return ANSWERED_QUESTION if question else ANSWERED
