"""The forms of accounts: those of the account page, of a password link, and of the people page."""

from typing import Any

from approvals.outbox import webhook
from approvals.people import accounts, instances, preferences, second_factors, tokens
from runtime.web.forms import PageForm, TypedField

# The choices of a token's end, and the days until then.
EXPIRIES: dict[str, int | None] = {
    **{str(days): days for days in (7, 30, 90, 365)},
    "never": None,
}
DEFAULT_EXPIRY = "90"
_NAME: dict[str, Any] = {"autocapitalize": "none", "required": True}
_PASSWORD: dict[str, Any] = {"autocomplete": "new-password", "required": True}


class ProfileForm(PageForm):
    """A person's name and mail address."""

    full_name = TypedField("Full name", optional=True, maximum=accounts.MAX_NAME)
    email = TypedField("E-mail", "email", optional=True, maximum=accounts.MAX_ADDRESS)


class OwnProfileForm(ProfileForm):
    """The reader's own name and mail address, which the browser may fill in."""

    full_name = TypedField(
        "Full name", optional=True, maximum=accounts.MAX_NAME, autocomplete="name"
    )
    email = TypedField(
        "E-mail", "email", optional=True, maximum=accounts.MAX_ADDRESS, autocomplete="email"
    )


class GroupsForm(PageForm):
    """A person's groups."""

    group = TypedField("Groups", "checks")


class PersonForm(GroupsForm, ProfileForm):
    """A new person with their groups."""

    username = TypedField(
        "Username",
        help="Letters a to z, digits and @ . + - _",
        maximum=accounts.MAX_USERNAME,
        **_NAME,
    )


class NewGroupForm(PageForm):
    """The name of a new group."""

    group = TypedField(
        "Name of the group",
        help="Rules of the policy can name it, such as finance. Members need the group reviewers too.",
        maximum=40,
        **_NAME,
    )


class NewPasswordForm(PageForm):
    """A new password, typed twice."""

    password = TypedField(
        "New password",
        "password",
        help="At least 8 characters, not only digits, not a common one, not like the username.",
        **_PASSWORD,
    )
    again = TypedField("Confirm password", "password", **_PASSWORD)

    def clean(self) -> None:
        """Refuse two different texts."""
        if self.cleaned_data["password"] != self.cleaned_data["again"]:
            self.add_error("password", "was not typed the same way twice")


class ChangePasswordForm(NewPasswordForm):
    """A new password in place of the current one."""

    current = TypedField(
        "Current password", "password", autocomplete="current-password", required=True
    )


class ConfirmForm(PageForm):
    """The password, which confirms a change of the account."""

    password = TypedField(
        "Your password", "password", autocomplete="current-password", required=True
    )


class AppForm(ConfirmForm):
    """A new authenticator app, with the code that it shows."""

    name = TypedField(
        "Name", initial="Authenticator app", maximum=second_factors.MAX_NAME, required=True
    )
    code = TypedField(
        "Code that the app shows", inputmode="numeric", autocomplete="one-time-code", required=True
    )
    field_order = ("name", "code", "password")


class ProvisionerTokenForm(PageForm):
    """A new token with which programs provision instances."""

    name = TypedField(
        "Name",
        help="Its purpose, such as the program that uses it.",
        maximum=tokens.MAX_NAME,
        required=True,
    )
    expires = TypedField(
        "Expires",
        choices=[
            (value, f"after {days} days" if days else "never") for value, days in EXPIRIES.items()
        ],
        initial=DEFAULT_EXPIRY,
    )

    @property
    def days(self) -> int | None:
        """The days until its end, None without one, and 0 for a choice that is none, which is refused."""
        return EXPIRIES.get(self.cleaned_data["expires"] or DEFAULT_EXPIRY, 0)

    def clean(self) -> None:
        """Require a name. A program that uses the API may leave it out."""
        if not self.cleaned_data["name"]:
            self.add_error("name", "is missing: say what the token is for")

    def mark_field(self, path: str, detail: str) -> None:
        """Show a problem of the days at the choice of them."""
        super().mark_field({"days": "expires", "scopes": "scope"}.get(path, path), detail)


class TokenForm(ProvisionerTokenForm):
    """A new token of the API."""

    scope = TypedField("Scopes within your rights", "checks")

    def clean(self) -> None:
        """Require a scope too."""
        super().clean()
        if not self.cleaned_data["scope"]:
            self.add_error("scope", "are missing: choose at least one")


class InstanceForm(PageForm):
    """A new instance of an agent outside."""

    name = TypedField("Name", help="Reviewers read it.", maximum=instances.MAX_NAME, required=True)

    def mark_field(self, path: str, detail: str) -> None:
        """Show a problem of the name as the protocol calls it."""
        super().mark_field({"instance_name": "name"}.get(path, path), detail)


class AbsenceForm(PageForm):
    """The first and the last day of an absence, and the deputy."""

    starts = TypedField("First day", "date", required=True)
    ends = TypedField("Last day", "date", required=True)
    deputy = TypedField("Deputy", "select", required=True)


class TimeForm(PageForm):
    """The time zone and the clock in which the reader reads times."""

    zone = TypedField("Time zone", "select")
    clock = TypedField("Clock", choices=[(hours, f"{hours} hours") for hours in preferences.CLOCKS])


class ChoiceForm(PageForm):
    """The news that a channel tells, and how much of them."""

    from_risk = TypedField(
        "Requests that I may decide",
        "select",
        choices=[
            ("low", "all"),
            ("medium", "medium and high risk, and calls in doubt"),
            ("high", "high risk and calls in doubt"),
            ("", "none"),
        ],
        initial="low",
    )
    runs = TypedField("My own runs: when one ends, and when a text for me is released", "check")
    shows = TypedField(
        "A notice shows at most",
        "select",
        choices=[
            ("title", "the sentence of a request"),
            ("arguments", "its arguments too"),
            ("nothing", "that a request waits, and its risk"),
        ],
    )


class ChannelForm(ChoiceForm):
    """A new channel."""

    kind = TypedField(
        "By",
        choices=[
            ("mail", "mail"),
            ("push", "this browser, which may be closed (needs JavaScript)"),
            ("apprise", "Teams or another service, by an Apprise URL"),
        ],
        initial="mail",
    )
    address = TypedField("Address", maximum=webhook.MAX_URL, required=True)
    field_order = ("kind", "address")


class HoursForm(PageForm):
    """Quiet hours and digest."""

    zone = TypedField("Time zone", "select")
    quiet_from = TypedField("Quiet from", "time", optional=True)
    quiet_until = TypedField("Quiet until", "time", optional=True)
    urgent_at_night = TypedField(
        "Tell me of high risk and calls in doubt in quiet hours too", "check"
    )
    digest = TypedField(
        "Tell me of lower risk and of my runs only at these hours",
        help="For example 9, 15. Empty: at once.",
        optional=True,
        maximum=80,
    )
