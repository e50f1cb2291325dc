"""The texts with which an agent receives a denial, or a request for changes. The page of a request shows the same."""

DENIED = "A person denied this call, it was not made. The reason given: "
CHANGES = "A person requested changes to this call, so it was not made. Make these changes and propose it again: "


def denial_text(reason: str) -> str:
    """Return the text that the model receives as the result of a call that a person denied."""
    return f"{DENIED}{reason}"


def changes_text(reason: str) -> str:
    """Return the text that the model receives as the result of a call to which a person requested changes."""
    return f"{CHANGES}{reason}"
