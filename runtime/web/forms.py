"""The forms of pages: typed fields, and the way a page shows a field.

A form reads texts. The action checks the limits, and the page adds its refusal to the fields that it names.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any, Self, cast

from django import forms
from django.forms.renderers import TemplatesSetting
from django.http import HttpRequest, HttpResponse
from django.utils.safestring import SafeString

from runtime.errors import InvalidInput, RequestError
from runtime.web.schema_form import InvalidValue, read_value

_TEXTS = ("text", "long", "select", "email", "date", "time", "datetime-local", "password")
_CHECKS = ("check", "checks")  # one box, and one for each choice
_INPUT_MODES = {"integer": "numeric", "number": "decimal"}

Choices = Iterable[tuple[str, str]]
View = Callable[..., HttpResponse]


class Renderer(TemplatesSetting):
    """Renders the fields of all forms with our template."""

    field_template_name = "components/field.html"


class TypedField(forms.Field):
    """A field whose text is a value of this kind, see `schema_fields.kind_of`. Its value is None if it is blank.

    A blank text is empty. `optional` is for the label: the action checks the required fields.
    """

    def __init__(
        self,
        label: str,
        kind: str = "text",
        *,
        help: str | SafeString = "",
        optional: bool = False,
        maximum: int | None = None,
        rows: int = 0,
        choices: Choices = (),
        initial: str | None = None,
        **attributes: Any,
    ) -> None:
        limit = {} if maximum is None else {"maxlength": maximum}
        mode = {"inputmode": _INPUT_MODES[kind]} if kind in _INPUT_MODES else {}
        widget = _make_widget(kind, rows, list(choices), {**limit, **mode, **attributes})
        super().__init__(
            required=False, label=label, help_text=help, widget=widget, initial=initial
        )
        self.kind, self.optional = kind, optional

    def to_python(self, value: Any) -> Any:
        """Read the text. Browsers send CRLF."""
        if self.kind in _CHECKS:
            return value
        text = (value or "").replace("\r\n", "\n")
        if self.kind in _TEXTS:
            return text if self.kind in ("long", "password") else text.strip()
        try:
            return read_value(self.kind, text) if text.strip() else None
        except InvalidValue as exc:
            raise forms.ValidationError(str(exc)) from exc


class PageForm(forms.Form):
    """A form of a page. `refusal` says why it was refused."""

    refusal: RequestError | None = None

    def __init__(
        self,
        data: Mapping[str, str] | None = None,
        *,
        initial: dict[str, Any] | None = None,
        ids: str = "",
    ) -> None:
        super().__init__(data, initial=initial, auto_id=f"{ids}%s", label_suffix="")

    def offer(self, name: str, choices: Choices) -> None:
        """Offer these choices for a field that has choices."""
        cast("forms.Select", self.fields[name].widget).choices = list(choices)

    def choose_shown_form(self, refused: "PageForm | None") -> "PageForm":
        """Return the refused form if it is one of this kind, else this one: the form to show."""
        return refused if type(refused) is type(self) else self

    def read(self) -> dict[str, Any]:
        """Return the values. Raise InvalidInput naming a field that cannot be read, which is marked already."""
        for name, problems in self.errors.items():
            raise InvalidInput(name, str(problems[0]))
        return self.cleaned_data

    def refuse(self, refusal: RequestError) -> Self:
        """Mark the fields that a refusal names, unless they are marked already, and return the form."""
        self.refusal = refusal
        if not self.errors:
            self.mark(refusal)
        return self

    def mark(self, refusal: RequestError) -> None:
        """Add a refusal to the fields that it names. A dotted path leads into the value of a field."""
        problems = (refusal, *refusal.further) if isinstance(refusal, InvalidInput) else (refusal,)
        for problem in problems:
            self.mark_field(problem.field or "", problem.detail)

    def mark_field(self, path: str, detail: str) -> None:
        """Add a problem to the field that this path begins with, if there is one."""
        name = path if path in self.fields else path.partition(".")[0].partition("[")[0]
        if name in self.fields:
            inside, text = path.removeprefix(name).lstrip("."), detail.rstrip(".")
            self.add_error(name, f"{inside}: {text}" if inside else text)


def take_form(
    form_type: type[PageForm],
    show: View,
    *,
    ids: str = "",
    refusals: tuple[type[RequestError], ...] = (InvalidInput,),
) -> Callable[[View], View]:
    """Make a decorator for an action that takes this form: its second argument is the form as it was sent.

    If the action raises one of these refusals, `show` shows the page with the refused form. `ids` may name a part of
    the address, as in "{person}-".
    """

    def decorate(view: View) -> View:
        @wraps(view)
        def handle(request: HttpRequest, /, **address: Any) -> HttpResponse:
            form = form_type(request.POST, ids=ids.format(**address))
            try:
                return view(request, form, **address)
            except refusals as refusal:
                return show(request, form.refuse(refusal), **address)

        return handle

    return decorate


def _make_widget(
    kind: str, rows: int, choices: list[tuple[str, str]], attributes: dict[str, Any]
) -> forms.Widget:
    if kind == "check":
        return forms.CheckboxInput(attributes)
    if kind == "checks":
        return forms.CheckboxSelectMultiple(attributes, choices)
    if choices or kind == "select":
        return forms.Select(attributes, choices)
    checked = {} if kind == "long" else {"spellcheck": "false"}  # prose has its spelling checked
    attributes = {"autocomplete": "off", **checked, **attributes}
    if rows:
        grows = {"class": "grows"} if rows == 1 else {}
        return _Area({"rows": rows, **grows, **attributes})
    if kind == "password":
        return forms.PasswordInput(attributes)  # its text is not shown again
    widget = forms.TextInput(attributes)
    if kind in _TEXTS:
        widget.input_type = kind
    return widget


class _Area(forms.Textarea):
    """A text area as wide as its form."""

    def __init__(self, attrs: dict[str, Any]) -> None:
        super().__init__(attrs)
        del self.attrs["cols"]
