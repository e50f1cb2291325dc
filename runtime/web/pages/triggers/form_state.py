"""The form of a schedule or a trigger as its page shows it."""

from dataclasses import dataclass, field
from typing import Any

from runtime.errors import RequestError
from runtime.triggers.fields import MAX_NAME
from runtime.triggers.sources.reading import WatchedSource
from runtime.triggers.sources.registry import SOURCES
from runtime.triggers.trials import EventTrial
from runtime.web.schema_form import Field


@dataclass(kw_only=True)
class FormState:
    """The agent, the texts as sent, the problems by field, and the definition that it makes in `sent`.

    `options` are what the fields offer. `fields` are those of the input of a schedule, `sample` and `trials` are for
    trials of a trigger.
    """

    agent: str
    texts: dict[str, str]
    options: dict[str, Any]
    fields: tuple[Field, ...] = ()
    problems: dict[str, str] = field(default_factory=dict)
    sent: dict[str, Any] = field(default_factory=dict)
    sample: Any = None
    trials: list[EventTrial] | None = None
    refusal: RequestError | None = None
    max_name: int = MAX_NAME

    @property
    def sources(self) -> list[tuple[WatchedSource, str, str]]:
        """Each source, with the text and the problem of its field."""
        return [
            (source, self.texts.get(kind, ""), self.problems.get(kind, ""))
            for kind, source in SOURCES.items()
        ]
