"""The name and the mail address of people. They only help people to recognise each other: they give no right.

The name is in the column that Django has for a first name, because names have no fixed parts.
"""

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.core.validators import EmailValidator

from approvals.errors import UnknownPerson
from approvals.signed.act_log import record
from runtime.errors import InvalidInput

MAX_NAME = 100
MAX_ADDRESS = 254  # RFC 5321, section 4.5.3.1.3, less the angle brackets

_is_address = EmailValidator()


def save(username: str, *, full_name: str, email: str, actor: str) -> None:
    """Save a person's name and mail address; each may be empty. Raise InvalidInput naming `full_name` or `email`."""
    given = {"first_name": checked_name(full_name), "last_name": "", "email": checked_mail(email)}
    if not User.objects.filter(username=username).update(**given):
        raise UnknownPerson(username)
    record(actor, f"changed the name or the mail address of {username}")


def checked_name(given: str) -> str:
    """Return a full name without outer blanks. Raise InvalidInput naming `full_name`."""
    name = given.strip()
    if len(name) > MAX_NAME or not name.isprintable():
        raise InvalidInput("full_name", f"must have at most {MAX_NAME} visible characters")
    return name


def checked_mail(given: str) -> str:
    """Return a mail address, or an empty text. Raise InvalidInput naming `email`."""
    address = given.strip()
    if len(address) > MAX_ADDRESS:
        raise InvalidInput("email", f"must have at most {MAX_ADDRESS} characters")
    if address:
        try:
            _is_address(address)
            address.rpartition("@")[2].encode("idna")  # as a mail to it does
        except (ValidationError, UnicodeError) as exc:
            raise InvalidInput("email", "must be a mail address, as in bea@example.com") from exc
    return address
