"""The forms of schedules and triggers. The fields of an input come from the schema of its agent."""

import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from django.forms import BoundField
from django.http import QueryDict
from django.utils import timezone

from runtime.core.values import json_schema
from runtime.core.values.limits import MAX_EVENT_NAME
from runtime.errors import RequestError
from runtime.store.tables.trigger_rows import TriggerKind
from runtime.triggers import calendar
from runtime.triggers.event_definition import EventDefinition
from runtime.triggers.fields import MAX_NAME
from runtime.triggers.schedule_definition import ScheduleDefinition
from runtime.triggers.signatures import Scheme
from runtime.triggers.sources import SOURCES
from runtime.triggers.sources.reading import WatchedSource
from runtime.triggers.trials import EventTrial
from runtime.web import schema_form
from runtime.web.forms import PageForm, TypedField
from runtime.web.schema_form import Field, as_typed

UNITS = {"minutes": 60, "hours": 3600, "days": 86400, "seconds": 1}
_SCHEMES = {Scheme.STANDARD: "Standard Webhooks", Scheme.HEADER: "secret in a header"}
# A text may hold {{date}} or {{time}}, which the fields for dates and times do not accept.
_AS_TEXT = ("date", "moment")


class TriggerForm(PageForm):
    """The form of a schedule or a trigger, new or with a `definition`. `refusal` is one that names no field."""

    refusal: RequestError | None = None
    trials: list[EventTrial] | None = None

    name = TypedField("Name", maximum=MAX_NAME)

    def __init__(
        self,
        agent: str,
        schema: Mapping[str, Any],
        data: QueryDict | None = None,
        definition: Any = None,
    ) -> None:
        self.agent, self.schema = agent, schema
        texts = self.suggest() if definition is None else self.read_texts(definition)
        super().__init__(data, initial=texts)
        self.add_fields(definition)

    def add_fields(self, definition: Any) -> None:
        """Add the fields that depend on the schema or the installation."""

    @abstractmethod
    def suggest(self) -> dict[str, str]:
        """Return the texts of a new one."""

    @abstractmethod
    def read_texts(self, definition: Any) -> dict[str, Any]:
        """Return the texts of this definition."""

    @property
    @abstractmethod
    def definition(self) -> dict[str, Any]:
        """The definition as the API accepts it."""


_RHYTHM_FIELDS = ("rhythm", "time", "weekday", "month_day")
WEEKDAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
# The rhythms that the form offers, as cron expressions.
RHYTHMS = {
    "daily": "{minute} {hour} * * *",
    "weekdays": "{minute} {hour} * * MON-FRI",
    "weekly": "{minute} {hour} * * {weekday}",
    "monthly": "{minute} {hour} {month_day} * *",
}
_RHYTHM_LABELS = {
    "": "as written below",
    "daily": "every day",
    "weekdays": "Monday to Friday",
    "weekly": "every week",
    "monthly": "every month",
}
_CRON = re.compile(
    r"(?P<minute>\d{1,2}) (?P<hour>\d{1,2}) (?P<month_day>\d{1,2}|\*) \* (?P<day>\*|MON-FRI|[A-Z]{3})"
)


class ScheduleForm(TriggerForm):
    """The form of a schedule. `input_fields` are those of an input that is an object.

    `rhythm` with `time` and a day is another way to write the cron expression. `next_times` are those of a trial.
    """

    next_times: tuple[datetime, ...] | None = None

    rhythm = TypedField("Repeats", choices=_RHYTHM_LABELS.items())
    time = TypedField("At", "time")
    weekday = TypedField("On", choices=zip(WEEKDAYS, _DAYS, strict=True))
    month_day = TypedField(
        "On day", "integer", help="1 to 31. Months without this day are left out."
    )
    cron = TypedField(
        "Cron expression",
        maximum=calendar.MAX_CRON,
        help="minute, hour, day of month, month, day of week: 30 2 * * MON-FRI is half past two on working days."
        " Leave it empty for an interval.",
    )
    every = TypedField("Or every", "integer")
    unit = TypedField("Unit", choices=[(unit, unit) for unit in UNITS])
    zone = TypedField(
        "Time zone", help="A name such as Europe/Berlin. All times of this form are in it."
    )
    starts_at = TypedField(
        "Start",
        "datetime-local",
        step=1,
        optional=True,
        help="Without it from now on, or after the first interval.",
    )
    ends_at = TypedField("End", "datetime-local", step=1, optional=True)
    input = TypedField("Input (JSON)", "json", rows=4)
    missed = TypedField(
        "Times that were missed, because no sweeper ran",
        choices=[
            ("once", "run once for all of them"),
            ("skip", "skip them"),
            ("all", "catch up: run for each"),
        ],
    )
    overlap = TypedField(
        "A time while an earlier run has not ended",
        choices=[
            ("skip", "skip it"),
            ("queue", "wait for that run"),
            ("allow", "run beside it"),
        ],
        help="A run that waits for a person has not ended.",
    )
    jitter = TypedField(
        "Jitter in seconds",
        "integer",
        help="Each time is delayed by up to this, so that many schedules do not start at once.",
    )
    thread = TypedField(
        "Thread",
        optional=True,
        help="The name of a conversation. A run remembers earlier ones of it, if its agent has a memory.",
    )

    def add_fields(self, definition: ScheduleDefinition | None) -> None:
        """Add a field for each property of the input, in place of one for all of it."""
        value = definition.input if definition is not None else None
        args = value if isinstance(value, dict) else {}
        self.input_fields = tuple(map(_as_text, schema_form.build_fields(self.schema, args)))
        if self.input_fields or self.schema.get("type") == "object":
            del self.fields["input"]

    def suggest(self) -> dict[str, str]:
        """Return the texts of a new schedule, in the time zone of the reader."""
        zone = timezone.get_current_timezone_name()
        return {"missed": "once", "overlap": "skip", "jitter": "0", "zone": zone}

    def read_texts(self, definition: ScheduleDefinition) -> dict[str, Any]:
        """Return the texts of this schedule."""
        every = definition.every or 60
        unit = max((unit for unit in UNITS if every % UNITS[unit] == 0), key=UNITS.__getitem__)
        zone = ZoneInfo(definition.zone)

        def local(at: datetime | None) -> str:
            return "" if at is None else at.astimezone(zone).replace(tzinfo=None).isoformat()

        return {
            **{
                name: getattr(definition, name)
                for name in self.base_fields
                if name not in ("unit", *_RHYTHM_FIELDS)
            },
            **read_rhythm(definition.cron or ""),
            "every": "" if definition.every is None else str(definition.every // UNITS[unit]),
            "unit": unit,
            "starts_at": local(definition.starts_at),
            "ends_at": local(definition.ends_at),
            "input": as_typed("json", definition.input),
        }

    def clean(self) -> dict[str, Any]:
        """Read the fields of the input, or require all of it as JSON."""
        if "input" in self.fields and not self.data.get("input", "").strip():
            self.add_error("input", "must be JSON")
        value, wrong = schema_form.read(self.input_fields, self.data)
        self._mark_input(wrong)
        cleaned = {"input": value, **self.cleaned_data}
        if cleaned.get("rhythm"):
            cleaned["cron"] = self._cron(cleaned)
        return cleaned

    def _cron(self, cleaned: dict[str, Any]) -> str:
        """Write the chosen rhythm as a cron expression, and mark the fields that contradict it or are missing."""
        if cleaned.get("cron") or cleaned.get("every") is not None:
            self.add_error(
                "rhythm",
                "leave the cron expression and the interval empty, or choose “as written below”",
            )
        hour, _, minute = (cleaned.get("time") or "").partition(":")
        if not (hour.isdecimal() and minute.isdecimal()):
            self.add_error("time", "must be a time such as 09:30")
            return ""
        if cleaned["rhythm"] == "monthly" and cleaned.get("month_day") is None:
            self.add_error("month_day", "must be a day of the month")
        return RHYTHMS[cleaned["rhythm"]].format(
            minute=int(minute),
            hour=int(hour),
            weekday=cleaned.get("weekday"),
            month_day=cleaned.get("month_day"),
        )

    def mark_field(self, path: str, detail: str) -> None:
        """Add a problem to a field of the input, or of the form."""
        if path.startswith("input") and "input" not in self.fields:
            self._mark_input({path.removeprefix("input").removeprefix("."): detail})
        else:
            super().mark_field(path, detail)

    @property
    def definition(self) -> dict[str, Any]:
        """The definition as the API accepts it."""
        every, seconds = self.cleaned_data["every"], UNITS.get(self.cleaned_data["unit"], 60)
        every = None if every is None else every * seconds
        sent = {
            name: value for name, value in self.cleaned_data.items() if name not in _RHYTHM_FIELDS
        }
        return {"agent": self.agent, **sent, "every": every}

    def _mark_input(self, wrong: dict[str, str]) -> None:
        self.input_fields, unplaced = schema_form.fill_in(self.input_fields, self.data, wrong)
        if wrong:  # also without a text of its own, so that the form is not valid
            self.add_error(None, [f"The input {problem}." for problem in unplaced])


def read_rhythm(cron: str) -> dict[str, str]:
    """Return the texts of the fields for a cron expression that the form can write; it is then left empty."""
    match = _CRON.fullmatch(cron)
    if match is None:
        return {}
    day, month_day = match["day"], match["month_day"]
    for rhythm, pattern in RHYTHMS.items():
        parts = {"minute": int(match["minute"]), "hour": int(match["hour"])}
        if pattern.format(**parts, weekday=day, month_day=month_day) == cron:
            if (rhythm == "weekly" and day not in WEEKDAYS) or (
                rhythm == "monthly" and month_day == "*"
            ):
                continue
            return {
                "rhythm": rhythm,
                "time": f"{parts['hour']:02}:{parts['minute']:02}",
                "weekday": day if rhythm == "weekly" else "",
                "month_day": month_day if rhythm == "monthly" else "",
                "cron": "",
            }
    return {}


class EventForm(TriggerForm):
    """The form of a trigger by events. The fields of its source come from the registry of sources."""

    event = TypedField(
        "Event",
        maximum=MAX_EVENT_NAME,
        help="The name of the events, such as employee.hired; of a CloudEvent its type.",
    )
    filter = TypedField(
        "Filter",
        rows=2,
        optional=True,
        help="A condition in CEL over id, source, name, subject, time and data, such as data.country == 'DE'."
        " Other events start nothing.",
    )
    mapping = TypedField(
        "Input of each run",
        "json",
        rows=8,
        help="JSON. A text that is one expression in double braces becomes its value; among other text it is written"
        " into the text.",
    )
    key = TypedField(
        "Key",
        optional=True,
        help="An expression such as data.login. Events of one key start in order.",
    )
    business_key = TypedField(
        "Business key",
        optional=True,
        help="An expression for the title of the run. A second event with the same one starts no second run."
        " Without it each event has its own.",
    )
    thread = TypedField(
        "Thread",
        optional=True,
        help="An expression such as data.customer. A run remembers earlier ones of its thread, if its agent has a"
        " memory.",
    )
    wakes = TypedField(
        "An event of the source or the webhook",
        choices=[
            ("", "starts a run"),
            ("first", "wakes its run, or starts one"),
            ("only", "wakes its run, and starts none"),
        ],
        help="The business key, or the id of a run, says which run waits for it. An event is kept for a day for a run"
        " that does not wait for it yet. You need the right to send events.",
    )
    at_once = TypedField(
        "Runs at once",
        "integer",
        optional=True,
        help="Other events wait. A run that waits for a person has not ended.",
    )
    at_once_per_key = TypedField("Runs at once of one key", "integer", optional=True)
    debounce = TypedField(
        "Debounce in seconds",
        "integer",
        help="The last event of a key starts a run, when none came for this long.",
    )
    rate = TypedField("Runs that start at most", "integer", optional=True)
    rate_seconds = TypedField("In seconds", "integer")
    sample = TypedField(
        "Sample event to try",
        "json",
        rows=6,
        optional=True,
        help="JSON: an event with its data, or the data alone. The newest events of this trigger are tried too."
        " Trying starts nothing.",
    )

    def add_fields(self, definition: EventDefinition | None) -> None:
        """Add a field for each source."""
        self.fields |= {kind: TypedField(kind.title(), optional=True) for kind in SOURCES}

    def suggest(self) -> dict[str, str]:
        """Return the texts of a new trigger, with a field of the event for each field of the input."""
        names = [part.name for part in json_schema.list_properties(self.schema)]
        sample = {"id": "hire-1", "source": "", "data": dict.fromkeys(names, "…")}
        return {
            "debounce": "0",
            "rate_seconds": "60",
            "mapping": as_typed("json", {name: f"{{{{data.{name}}}}}" for name in names}),
            "sample": as_typed("json", sample),
        }

    def read_texts(self, definition: EventDefinition) -> dict[str, Any]:
        """Return the texts of this trigger."""
        return {
            **{name: getattr(definition, name, None) for name in self.base_fields},
            "mapping": as_typed("json", definition.mapping),
            definition.source: definition.location,
        }

    @property
    def definition(self) -> dict[str, Any]:
        """The definition as the API accepts it."""
        mapping = {} if self.cleaned_data["mapping"] is None else self.cleaned_data["mapping"]
        return {"agent": self.agent, **self.cleaned_data, "mapping": mapping}

    @property
    def sources(self) -> Iterator[tuple[WatchedSource, BoundField]]:
        """Each source with its field."""
        return ((source, self[kind]) for kind, source in SOURCES.items())


class BackfillForm(PageForm):
    """The form of a back-fill."""

    first = TypedField("From", "datetime-local", step=1)
    until = TypedField("Until", "datetime-local", step=1)


class WebhookForm(PageForm):
    """The form of a webhook."""

    scheme = TypedField(
        "Signed as", choices=[(scheme, _SCHEMES.get(scheme, scheme.title())) for scheme in Scheme]
    )
    header = TypedField(
        "Header", optional=True, help="Only for a secret in a header, such as X-Token."
    )
    secret = TypedField(
        "Secret",
        "password",
        optional=True,
        help="The one that the other system shows. Without it one is made.",
    )


FORMS: Mapping[TriggerKind, type[TriggerForm]] = {
    TriggerKind.SCHEDULE: ScheduleForm,
    TriggerKind.EVENT: EventForm,
}


def _as_text(field: Field) -> Field:
    kind = "text" if field.kind in _AS_TEXT else field.kind
    raw = field.value if kind != field.kind and isinstance(field.value, str) else field.raw
    return replace(field, kind=kind, raw=raw, inside=tuple(map(_as_text, field.inside)))
