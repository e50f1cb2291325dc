"""An invoice as it comes in a file: JSON, one row of CSV, or a text.

Amounts are decimal texts, because a float cannot hold every cent.
"""

import csv
from collections.abc import Mapping
from io import StringIO
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from agents.sdk import inputs

WRONG_DIGITS = "the check digits of the IBAN are wrong"


def _with_right_digits(iban: str) -> str:
    """Check the two digits that ISO 13616 computes from all others. Raise ValueError."""
    turned = iban[4:] + iban[:4]
    if int("".join(str(int(char, 36)) for char in turned)) % 97 != 1:
        raise ValueError(WRONG_DIGITS)
    return iban


def _make_text_field(pattern: str, max_length: int, example: str) -> Any:
    return Field(max_length=max_length, pattern=pattern, examples=[example])


Number = Annotated[str, _make_text_field(r"^[A-Za-z0-9][A-Za-z0-9/_.-]*$", 40, "R-2026-017")]
Day = Annotated[
    str, _make_text_field(r"^20\d\d-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])$", 10, "2026-11-27")
]
Amount = Annotated[str, _make_text_field(r"^(0|[1-9]\d{0,8})\.\d\d$", 12, "1190.00")]
Currency = Annotated[str, _make_text_field(r"^[A-Z]{3}$", 3, "EUR")]
Iban = Annotated[
    str,
    _make_text_field(r"^[A-Z]{2}\d\d[A-Z0-9]{11,30}$", 34, "DE02120300000000202051"),
    AfterValidator(_with_right_digits),
]


class Invoice(BaseModel):
    """What an invoice says. `supplier` and `order` are numbers that the books know."""

    model_config = ConfigDict(extra="forbid")

    supplier: Number
    number: Number
    order: Number
    date: Day
    amount: Amount
    currency: Currency
    iban: Iban


_SCHEMA = Invoice.model_json_schema()


class InvoiceFile(BaseModel):
    """A file with one invoice. A file of CSV is read here; another text is left to the model."""

    file: Annotated[str, Field(min_length=1, max_length=255)]
    invoice: Annotated[
        Invoice | Annotated[str, Field(min_length=1, max_length=20_000)],
        Field(description="the fields of an invoice, or the text of one"),
    ]

    @model_validator(mode="after")
    def read_csv(self) -> "InvoiceFile":
        """Read the one row of a file whose name ends in `.csv`. Raise ValueError naming the field."""
        if isinstance(self.invoice, str) and self.file.lower().endswith(".csv"):
            rows = list(csv.DictReader(StringIO(self.invoice), restkey="more"))
            if len(rows) != 1:
                raise ValueError(f"the CSV has {len(rows)} rows below its names, and must have one")
            self.invoice = read(rows[0])
        return self


def read(values: Mapping[str, Any]) -> Invoice:
    """Read the fields of an invoice. Raise ValueError naming those that are wrong."""
    problems = inputs.list_problems(_SCHEMA, dict(values), root="invoice")
    if problems:
        raise ValueError("; ".join(f"{problem.field}: {problem.detail}" for problem in problems))
    try:
        return Invoice.model_validate(values)
    except ValidationError as exc:
        raise ValueError(WRONG_DIGITS) from exc  # the schema says all the rest
