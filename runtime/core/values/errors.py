"""The errors of the core, told apart by who is at fault."""


class CoreError(Exception):
    """The base of the core's errors; never raised itself."""


class IllegalTransition(CoreError):
    """An event met a state that has no transition for it: a bug of the caller or a foreign journal."""

    def __init__(self, machine: str, state: str, trigger: str, subject: str) -> None:
        super().__init__(f"{machine} {subject} is {state}: no transition for {trigger}")
        self.machine = machine
        self.state = state
        self.trigger = trigger
        self.subject = subject


class UnknownSubject(CoreError):
    """An event names a frame, call or gate that the continuation does not have."""

    def __init__(self, kind: str, subject: str) -> None:
        super().__init__(f"there is no {kind} {subject}")
        self.kind = kind
        self.subject = subject


class Unreadable(CoreError):
    """A stored document is not what the codec writes."""


class NewerSchema(CoreError):
    """A stored document was written by a newer version; this one must leave it untouched."""

    def __init__(self, schema: object) -> None:
        super().__init__(f"schema {schema} is newer than this version reads")
        self.schema = schema


class NotJson(CoreError):
    """A value that has no JSON form we accept: the message names the place and the limit."""

    def __init__(self, field: str, detail: str) -> None:
        super().__init__(f"{field}: {detail}")
        self.field = field
        self.detail = detail
