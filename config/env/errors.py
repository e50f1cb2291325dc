"""What is wrong with the environment."""


class InvalidSetting(Exception):
    """A variable of the environment has a value that cannot be used; whoever set it is to blame."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name} {problem}")
        self.name = name
