"""Lists people with their groups, rights and tokens, and describes groups and scopes in plain words."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import User
from django.db.models import DateTimeField, OuterRef, Q, QuerySet, Subquery

from approvals import clock
from approvals.errors import UnknownPerson
from approvals.models import Approval, Assignment, Token
from approvals.people import accounts
from approvals.rights import assignments
from approvals.rights.principals import Scope
from approvals.rules.policy import DECIDING, Group, is_named
from approvals.signed import rows as signed_rows
from runtime.errors import InvalidInput
from runtime.reads.filters import split_terms

MAX_PEOPLE = 100  # people on one page; a search by name finds the others
GROUPS: Mapping[Group, str] = {
    Group.REQUESTERS: "start runs of agents",
    Group.REVIEWERS: "decide on the calls of agents in runs that other people started",
    Group.ADMINS: "manage people and tokens, start runs, and read every run with its journal,"
    " but decide nothing",
}
NAMED = "named by rules of the policy; counts together with the right to decide"
_WORDS: Mapping[Scope, str] = {
    Scope.RUNS_START: "start runs",
    Scope.RUNS_READ: "read runs",
    Scope.RUNS_CANCEL: "cancel runs",
    Scope.RUNS_CONTROL: "pause and resume runs, and send them messages",
    Scope.EVENTS_SEND: "send events that calls wait for",
    Scope.APPROVALS_READ: "read approvals",
    Scope.APPROVALS_DECIDE: "approve and deny",
    Scope.INSTANCES_MANAGE: "provision agents outside that ask for approvals",
    Scope.ADMIN: "read everything, including journals and continuations",
}
# Fails if a scope has no description.
SCOPES: Mapping[Scope, str] = {scope: _WORDS[scope] for scope in Scope}
_STATES = {"active": Q(is_active=True), "disabled": Q(is_active=False), "new": Q(last_login=None)}
STATES = tuple(f"is:{state}" for state in _STATES)
MAX_CHANGES = 50
_LABELS: Mapping[str, str] = {
    Assignment.AssignmentChange.GIVEN: "given",
    Assignment.AssignmentChange.CONFIRMED: "confirmed",
    Assignment.AssignmentChange.CHANGED: "chosen",
    Assignment.AssignmentChange.ENDED: "taken away",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """One group of a person, or their password, with its giver: `given_by` None is the command line.

    `is_chosen` is true if the person changed the password they were given. `is_recorded` is false for a right without a
    signed row, which has no effect. A right that `is_pending` has no effect until a second admin confirms it. A right
    does not count for decisions before `until`, nor in runs whose origin includes a person of `bound`. `waits` is true
    if a second admin can confirm it, `confirmable` if the reader of the page may.
    """

    name: str
    seq: int = 0
    is_recorded: bool = False
    is_chosen: bool = False
    given_by: str | None = None
    given_at: datetime | None = None
    is_confirmed: bool = False
    confirmed_by: str | None = None
    is_pending: bool = False
    until: datetime | None = None
    bound: tuple[str, ...] = ()
    waits: bool = False
    confirmable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """A person with an account. `tokens` lists valid tokens first, then the others, each newest first.

    `last_active` is the time of the last login, decision or use of a token.
    """

    username: str
    full_name: str
    email: str
    has_password: bool
    last_active: datetime | None
    groups: tuple[str, ...]
    active: bool
    last_login: datetime | None
    tokens: tuple[Token, ...]
    rights: tuple[Right, ...]

    @property
    def valid_tokens(self) -> int:
        """The number of tokens that a program can still use."""
        return sum(token.is_valid for token in self.tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeoplePage:
    """People by name; `more_matches` is the number of further matches."""

    people: tuple[Person, ...]
    more_matches: int


def read_people_page(
    search: str, *, selected: str | None = None, reader: str | None = None
) -> PeoplePage:
    """List people who match `search`, and always the person `selected`, for the admin `reader`.

    Every word must occur in the username, the full name or the mail address. Raise InvalidInput naming `q`.
    """
    condition = Q()
    for operator, text in split_terms(search, FILTERS):
        condition &= _CONDITIONS[operator](text)
    fitting = User.objects.filter(condition)
    usernames = list(fitting.order_by("username").values_list("username", flat=True)[:MAX_PEOPLE])
    rows = _read(User.objects.filter(Q(username__in=usernames) | Q(username=selected)), reader)
    more_matches = fitting.count() - len(usernames) if len(usernames) == MAX_PEOPLE else 0
    return PeoplePage(people=tuple(rows), more_matches=more_matches)


def _match_anywhere(text: str) -> Q:
    return (
        Q(username__icontains=text)
        | Q(first_name__icontains=text)
        | Q(last_name__icontains=text)
        | Q(email__icontains=text)
    )


def _match_state(state: str) -> Q:
    if state.lower() not in _STATES:
        raise InvalidInput("q", "must have active, disabled or new after is:")
    return _STATES[state.lower()]


_CONDITIONS: Mapping[str, Callable[[str], Q]] = {
    "": _match_anywhere,
    "group": lambda name: Q(pk__in=User.objects.filter(groups__name__iexact=name).values("pk")),
    "is": _match_state,
}
FILTERS = tuple(_CONDITIONS)


def group_words() -> dict[str, str]:
    """Describe each group, those that rules can name last."""
    descriptions = {str(group): words for group, words in GROUPS.items()}
    return descriptions | dict.fromkeys(accounts.list_named_groups(), NAMED)


def list_people() -> list[Person]:
    """List all people by name."""
    return _read(User.objects.all())


def list_some_admins() -> list[str]:
    """Return the usernames of at most three active admins, for people who need one."""
    rows = User.objects.filter(groups__name=Group.ADMINS, is_active=True)
    return list(rows.order_by("username").values_list("username", flat=True)[:3])


def read_person(username: str) -> Person:
    """Return the person with this username. Raise UnknownPerson."""
    for person in _read(User.objects.filter(username=username)):
        return person
    raise UnknownPerson(username)


def _read(users: QuerySet[User], reader: str | None = None) -> list[Person]:
    decisions = Approval.objects.filter(decided_by=OuterRef("username"), decided_at__isnull=False)
    latest = decisions.order_by("-decided_at").values("decided_at")[:1]
    decided = Subquery(latest, output_field=DateTimeField())
    people = users.order_by("username").annotate(last_decision=decided)
    rows = list(people.prefetch_related("groups", "tokens"))
    assignment_rows = assignments.read_latest(rows)
    hands = assignments.list_hands(reader) if reader else frozenset()
    at = clock.read_time()
    persons = []
    for row in rows:
        groups = sorted(group.name for group in row.groups.all())
        tokens = sorted(row.tokens.all(), key=lambda token: token.created_at, reverse=True)
        tokens.sort(key=lambda token: not token.is_valid)
        used = (token.last_used_at for token in tokens)
        times = (row.last_login, getattr(row, "last_decision", None), *used)
        person = Person(
            username=row.username,
            full_name=row.get_full_name(),
            email=row.email,
            has_password=row.has_usable_password(),
            last_active=max((time for time in times if time is not None), default=None),
            groups=tuple(groups),
            active=row.is_active,
            last_login=row.last_login,
            tokens=tuple(tokens),
            rights=tuple(
                _build_right(name, assignment_rows.get((row.pk, name)), row, hands, at)
                for name in (assignments.CREDENTIAL, *groups)
            ),
        )
        persons.append(person)
    return persons


def _build_right(
    name: str, row: Assignment | None, person: User, reader_hands: Collection[str], at: datetime
) -> Right:
    is_password = name == assignments.CREDENTIAL
    if row is None or not assignments.is_of(row, person):
        return Right(name=name)
    decides = is_password or name in DECIDING or is_named(name)
    bond, until = assignments.find_bond(row), assignments.find_cooling_end(row)
    waits = assignments.may_be_confirmed(row)
    is_chosen = row.act == Assignment.AssignmentChange.CHANGED
    return Right(
        name=name,
        seq=row.seq,
        is_recorded=True,
        is_chosen=is_chosen,
        given_by=row.givers[0] if row.givers else None,
        given_at=row.given_at,
        is_confirmed=row.confirmed_at is not None,
        confirmed_by=row.confirmed_by,
        is_pending=assignments.is_pending(row),
        until=until if decides and until and until > at else None,
        bound=tuple(sorted(bond.givers)) if decides and bond and bond.second is None else (),
        waits=waits,
        confirmable=waits
        and (is_chosen or not is_password)
        and bool(reader_hands)
        and assignments.is_second(reader_hands, row),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RightChange:
    """One change of a group or password. `by` None is the command line. A row that `is_signed` is genuine."""

    right: str
    act: str
    by: str | None
    at: datetime
    is_signed: bool

    @property
    def label(self) -> str:
        """The act as a verb."""
        return _LABELS.get(self.act, self.act)


def list_right_changes(username: str) -> tuple[RightChange, ...]:
    """Return the last changes of the rights that a person has or had, the latest first."""
    rows = Assignment.objects.filter(person__username=username).order_by("-at", "-seq", "what")
    return tuple(
        RightChange(
            right=row.what, act=row.act, by=row.by, at=row.at, is_signed=signed_rows.is_valid(row)
        )
        for row in rows[:MAX_CHANGES]
    )
