"""The text with which an agent receives a denial. The page of a request shows the same before it is sent."""

DENIED = "A person denied this call, it was not made. The reason given: "


def denial_text(reason: str) -> str:
    """Return the text that the model receives as the result of a call that a person denied."""
    return f"{DENIED}{reason}"
