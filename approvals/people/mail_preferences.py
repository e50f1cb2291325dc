"""Saves about what a person is mailed, and to which address. Only the person chooses."""

from dataclasses import dataclass

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.core.validators import EmailValidator

from approvals import clock
from approvals.models import MailPreference
from runtime.errors import InvalidInput

OFF = MailPreference.About.OFF
CHOICES = MailPreference.About.values
MAX_ADDRESS = 254  # RFC 5321, section 4.5.3.1.3, less the angle brackets

_is_address = EmailValidator()


@dataclass(frozen=True, slots=True, kw_only=True)
class Preference:
    """A person's choice. `confirmed` says whether the mail server took a mail, `problem` why it refused the last."""

    about: str = OFF
    runs: bool = False
    address: str = ""
    confirmed: bool = False
    problem: str = ""


def of(username: str) -> Preference:
    """Return a person's choice."""
    row = MailPreference.objects.filter(person__username=username).first()
    if row is None:
        return Preference()
    return Preference(
        about=row.about,
        runs=row.runs,
        address=row.address,
        confirmed=row.confirmed_at is not None,
        problem=row.problem,
    )


def save(username: str, about: object, address: object, *, runs: bool = False) -> bool:
    """Save a choice; `runs` says whether the person is mailed about their own runs. Return whether any mail is sent.

    Without one the address is deleted too. Raise InvalidInput naming `about` or `address`.
    """
    if about not in CHOICES:
        raise InvalidInput("about", f"must be one of {', '.join(CHOICES)}")
    person = User.objects.get(username=username)
    if about == OFF and not runs:
        MailPreference.objects.filter(person=person).delete()
        return False
    MailPreference.objects.update_or_create(
        person=person,
        defaults={
            "about": about,
            "runs": runs,
            "address": _address(address),
            "since": clock.now(),
            "confirmed_at": None,
            "problem": "",
            "retry_at": None,
        },
    )
    return True


def _address(given: object) -> str:
    address = given.strip() if isinstance(given, str) else ""
    if len(address) > MAX_ADDRESS:
        raise InvalidInput(
            "address", f"has {len(address)} characters, at most {MAX_ADDRESS} are allowed"
        )
    try:
        _is_address(address)
        address.rpartition("@")[2].encode("idna")  # as a mail to it does
    except (ValidationError, UnicodeError) as exc:
        raise InvalidInput("address", "must be a mail address, as in bea@example.com") from exc
    return address
