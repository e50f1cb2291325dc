"""The form that starts a run: its input by the agent's schema, and its limits. Sent twice, it starts one run.

Text, whole numbers, numbers, yes or no, choices, mail addresses and dates have fields of their own; other values are
typed as JSON. Empty fields are omitted, so defaults apply; the schema reports missing required fields.
"""

from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.forms import BoundField

from agents.catalogue.queries import AgentView
from agents.models import FormSubmission
from agents.sdk import inputs
from runtime.control.start import start
from runtime.core.documents.budget_text import NAMES, from_form, to_text, unit_of
from runtime.core.values.budgets import BudgetLimits
from runtime.core.values.json_schema import Property, example_of, parts
from runtime.core.values.limits import MAX_KEY
from runtime.errors import InvalidInput
from runtime.ports.access import Actor
from runtime.web.display import plain_visible
from runtime.web.forms import PageForm, TypedField
from runtime.web.schema_form import as_typed, choices_of, help_of, kind_of

WHOLE = "input"  # the only field of a schema that is not an object's

_INPUT, _BUDGET = "in.", "budget."  # prefixes of the names of fields


class StartForm(PageForm):
    """The form of one agent."""

    business_key = TypedField(
        "Business key",
        optional=True,
        maximum=MAX_KEY,
        help="Your reference for this work, for example a ticket number. Starting again with the same key returns the"
        " same run.",
    )
    thread = TypedField("Thread", optional=True, maximum=MAX_KEY)

    def __init__(self, agent: AgentView, data: Mapping[str, str] | None = None) -> None:
        super().__init__(data)
        self.agent = agent
        self.fields["thread"].help_text = (
            f"The name of a conversation. The run remembers {'a summary of ' if agent.sums_up else ''}the last"
            f" {agent.remembers} texts of earlier runs with this name that you may read. The people who started or"
            " steered those cannot decide in this one."
        )
        self.names = [prop.name for prop in parts(agent.schema)]
        self.fields |= {f"{_INPUT}{prop.name}": _field_of(prop) for prop in parts(agent.schema)}
        self.is_whole = not self.names and agent.schema.get("type") != "object"
        if self.is_whole:
            self.fields[_INPUT + WHOLE] = TypedField("Input", "json", rows=6, help="JSON")
        self.fields |= dict(_budget_fields())

    @property
    def input_fields(self) -> list[BoundField]:
        """The fields of the input."""
        return [self[name] for name in self.fields if name.startswith(_INPUT)]

    @property
    def budget_fields(self) -> list[BoundField]:
        """The fields of the limits."""
        return [self[name] for name in self.fields if name.startswith(_BUDGET)]

    @property
    def budget(self) -> dict[str, object]:
        """The limits as typed. The start of the run checks them."""
        return from_form({name: self.cleaned_data[_BUDGET + name] for name in NAMES})

    def clean(self) -> dict[str, Any]:
        """Check the input against the schema of the agent."""
        values = self.cleaned_data
        value = values.get(_INPUT + WHOLE)
        if not self.is_whole:
            value = {name: values[_INPUT + name] for name in self.names if self._is_typed(name)}
        elif not self._is_typed(WHOLE) and _INPUT + WHOLE not in self.errors:
            self.add_error(_INPUT + WHOLE, "must be JSON")
        for problem in inputs.problems(self.agent.schema, value):
            name = self._name_of(problem)
            # An unreadable field is missing from the value. The reader must see why it is unreadable, not that it is
            # missing.
            if name not in self.errors:
                self.add_error(name, problem.detail)
        return {**values, WHOLE: value}

    def _is_typed(self, name: str) -> bool:
        """Return True if the field has a readable text."""
        name = _INPUT + name
        return name in self.cleaned_data and bool(self.data.get(name, "").strip())

    def _name_of(self, problem: InvalidInput) -> str | None:
        """Return the name of the field that a problem of the input belongs to."""
        if self.is_whole:
            return _INPUT + WHOLE
        path = problem.field.removeprefix(f"{WHOLE}.")
        names = (
            name for name in self.names if path == name or path.startswith((f"{name}.", f"{name}["))
        )
        name = next(names, None)
        return None if name is None else _INPUT + name


def start_once(
    *,
    form: UUID,
    agent: str,
    input: Any,
    business_key: str | None,
    actor: Actor,
    budget: object = None,
    thread: str | None = None,
) -> UUID:
    """Start a run from this form, or return the run that it started before.

    Of two concurrent submissions, the second waits for the first on the form's row, and then returns its run. Raise as
    runtime.control.start.start; the form may then be submitted again.
    """
    with transaction.atomic():
        row, _ = FormSubmission.objects.get_or_create(
            number=form, defaults={"person": actor.person}
        )
        if row.run is not None and row.person == actor.person:
            return row.run
        run = start(
            agent=agent,
            input=input,
            business_key=business_key,
            actor=actor,
            budget=budget,
            thread=thread,
        ).run
        FormSubmission.objects.filter(number=form).update(run=run)
        return run


def _field_of(prop: Property) -> TypedField:
    kind = kind_of(prop.rule)
    example = example_of(prop.rule)
    example = f"for example {example}" if example else ""
    choices = [(value, plain_visible(label)) for value, label in choices_of(prop.rule)]
    if choices:
        choices.insert(0, ("", "choose one" if prop.required else "not given"))
    return TypedField(
        prop.title,
        kind,
        help=" · ".join(filter(None, (help_of(prop), example))),
        optional=not prop.required,
        rows={"json": 6, "long": 1}.get(kind, 0),
        choices=choices,
        initial="" if prop.default is None else as_typed(kind, prop.default),
        required=prop.required,
    )


def _budget_fields() -> Iterator[tuple[str, TypedField]]:
    """Yield a field for each limit, with the installation's as its help."""
    bounds: BudgetLimits = settings.SIGNOFF_BUDGET or BudgetLimits()
    for name, limit in NAMES.items():
        unit, maximum = unit_of(limit), bounds.of(limit)
        yield (
            _BUDGET + name,
            TypedField(
                unit[0].upper() + unit[1:],
                inputmode="decimal",
                help=""
                if maximum is None
                else f"at most {to_text(limit, maximum)}, also the default",
            ),
        )
