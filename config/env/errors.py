"""The error for an invalid environment variable."""


class InvalidSetting(Exception):
    """An environment variable has an invalid value. The message names it for the operator."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name} {problem}")
        self.name = name
