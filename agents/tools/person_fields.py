"""The fields of a person's data, for the inputs of tools and agents."""

from typing import Annotated

from pydantic import Field

# No control characters: a line break in a name would end the header of a mail.
FullName = Annotated[
    str, Field(min_length=1, max_length=200, pattern=r"^[^\s\x00-\x1f\x7f][^\x00-\x1f\x7f]*$")
]

# The e-mail addresses that HTML accepts (html.spec.whatwg.org, section 4.10.5.1.5), so that browser, API and tool
# agree. Only a sent mail shows whether the address exists.
_LABEL = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
EmailAddress = Annotated[
    str,
    Field(
        max_length=254,
        pattern=rf"^[a-zA-Z0-9.!#$%&'*+/=?^_`{{|}}~-]+@{_LABEL}(?:\.{_LABEL})*$",
        json_schema_extra={"format": "email"},
    ),
]

Username = Annotated[str, Field(max_length=128, pattern=r"^[a-zA-Z0-9_][a-zA-Z0-9_.@+-]*$")]

SecurityLevel = Annotated[int, Field(ge=0, le=99, description="higher = more privileges")]

Application = Annotated[str, Field(max_length=64, pattern=r"^[a-z0-9][a-z0-9-]*$")]
