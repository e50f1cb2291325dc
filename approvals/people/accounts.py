"""Creates and changes people: users of django.contrib.auth, whose rights come from their groups.

Every change locks one row until the commit. Without it, two admins could disable each other at the same time, and two
usernames that differ only in case could be created. `actor` is the admin who makes the change; None is the command
line of the installation.
"""

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from django.contrib.auth import SESSION_KEY
from django.contrib.auth.models import Group as GroupRow
from django.contrib.auth.models import User
from django.contrib.auth.password_validation import validate_password
from django.contrib.auth.validators import ASCIIUsernameValidator
from django.contrib.sessions.models import Session
from django.core.exceptions import ValidationError
from django.core.validators import EmailValidator
from django.db import transaction
from django.dispatch import Signal

from approvals import clock
from approvals.errors import AlreadyTaken, LastAdmin, NotConfirmable, UnknownPerson
from approvals.models import ApprovalClaim, Assignment, Handover, PasswordLink
from approvals.people import directories, tokens
from approvals.rights import assignments, principals
from approvals.rules.policy import Group, is_named
from approvals.signed.audit import log_change
from runtime.errors import InvalidInput

MAX_USERNAME = 64
MAX_PASSWORD = 1024  # hashing takes time for every character
sessions_ended = Signal()  # after the commit, with `person`, the username
_FIRST = re.compile(r"[A-Za-z0-9]")
MAX_NAME = 100
MAX_ADDRESS = 254  # RFC 5321, section 4.5.3.1.3, less the angle brackets
_is_address = EmailValidator()
MAX_GROUPS = 50
_GROUP_NAME = re.compile(r"[a-z][a-z0-9-]{1,39}")


def create_person(
    *,
    username: str,
    password: str | None,
    groups: Collection[str],
    actor: str | None = None,
    full_name: str = "",
    email: str = "",
    behind: Collection[str] = (),
) -> User:
    """Create a person in these groups. Raises InvalidInput naming the field. `behind` names further givers.

    Without a password the person cannot log in before they chose one with a link. The username must be new
    regardless of case, because people read it and the requester rule compares it.
    """
    check_username(username)
    if password is not None:
        check_password(password, username)
    names = {"first_name": check_name(full_name), "email": check_mail(email)}
    with lock_people():
        if User.objects.filter(username__iexact=username).exists():
            raise AlreadyTaken("username", "is taken")
        person = User.objects.create_user(username=username, password=password, **names)
        assignments.grant(person, assignments.CREDENTIAL, actor=actor, behind=behind)
        _join(person, groups, actor)
        log_change(actor, f"added {username} to {_join_groups(groups)}")
    return person


def set_groups(username: str, groups: Collection[str], *, actor: str | None) -> None:
    """Put a person into exactly these groups. Raises LastAdmin if no active admin would be left."""
    with lock_people():
        person = read_person(username)
        if Group.ADMINS not in groups:
            require_other_admin(person, "leave admins")
        _join(person, groups, actor)
        log_change(actor, f"put {username} into {_join_groups(groups)}")


def create_group(name: str, *, actor: str | None) -> None:
    """Create a group that rules of the policy can name. Raises InvalidInput naming `group`."""
    if not _GROUP_NAME.fullmatch(name) or not is_named(name):
        raise InvalidInput(
            "group",
            "must have 2 to 40 characters, only a to z, 0 to 9 and -, start with a letter,"
            " and not be the name of a built-in group",
        )
    with lock_people():
        names = list_named_groups()
        if name in names:
            raise InvalidInput("group", "exists already")
        if len(names) >= MAX_GROUPS:
            raise InvalidInput("group", f"is one too many: at most {MAX_GROUPS} can be created")
        GroupRow.objects.create(name=name)
        log_change(actor, f"created the group {name}")


def disable(username: str, *, actor: str | None) -> None:
    """End a person's rights, sessions, tokens, password links and sign-ins at once. Has no effect on a disabled person.

    Raises LastAdmin for oneself and for the last active admin.
    """
    with lock_people():
        person = read_person(username)
        if not person.is_active:
            return
        if actor == username:
            raise LastAdmin(f"{username} cannot disable their own account: another admin can.")
        require_other_admin(person, "be disabled")
        User.objects.filter(pk=person.pk).update(is_active=False)
        for group in list_groups():
            assignments.end_right(person, group, actor=actor)
        assignments.end_sign_ins(person, actor=actor)
        end_sessions(person)
        tokens.revoke_all(person)
        _end_links(person)
        for model in (ApprovalClaim, Handover):  # other people take over what waits for this one
            model._default_manager.filter(person=username).delete()  # noqa: SLF001 - its documented API
        log_change(actor, f"disabled {username}")


def enable(username: str, *, actor: str | None, groups: Collection[str] | None = None) -> None:
    """Let a person log in again with their password, in `groups` or those of before; their tokens stay revoked.

    The enabling admin becomes the giver of their groups: otherwise an admin could enable a reviewer and decide as them.
    Raise Forbidden if a directory disabled the person. None is the command line, which may enable all.
    """
    with lock_people():
        person = read_person(username)
        if person.is_active:
            return
        if actor is not None:
            directories.check_enabling(person)
        end_sessions(person)  # they, like tokens, may have been created during the disabling
        tokens.revoke_all(person)
        User.objects.filter(pk=person.pk).update(is_active=True)
        _join(person, _read_groups(person) if groups is None else groups, actor)
        log_change(actor, f"enabled {username}")


def confirm(username: str, right: str, *, seq: int, actor: str | None) -> None:
    """Confirm, as a second admin, a right that another admin gave; `seq` is the assignment the admin saw.

    Raise NotConfirmable if it has changed since, or if `actor` is not independent. That is the person, the giver, or an
    admin who shares a giver with one of them. None is the command line, which may always confirm.
    """
    with lock_people():
        person = read_person(username)
        row = assignments.read_latest([person]).get((person.pk, right))
        if row is None or row.seq != seq or not assignments.may_be_confirmed(row):
            raise NotConfirmable(
                "This has changed since you saw it: read it again before you confirm it."
            )
        if actor is not None and not assignments.is_second(assignments.list_hands(actor), row):
            raise NotConfirmable(
                f"A second admin must confirm this: one who did not get their own right from"
                f" {row.givers[0]}, and did not give {row.givers[0]} theirs."
            )
        if right == assignments.CREDENTIAL:
            if row.act != Assignment.AssignmentChange.CHANGED:
                raise NotConfirmable(
                    f"{row.givers[0]} knows this password: {row.username} must change it on the page"
                    " Your account first."
                )
            assignments.end_sign_ins(person, actor=actor, since=row.given_at)
            end_sessions(person)
            tokens.revoke_all(person, since=row.given_at)
        assignments.confirm(row, actor=actor)
        log_change(actor, f"confirmed {right} of {username}, given by {row.givers[0]}")


def set_password(
    username: str, password: str, *, actor: str | None, keep: str | None = None
) -> User:
    """Give a person a new password, which ends their password links, and their sessions but for the key `keep`.

    If another admin sets an admin's password, the person has no admin's rights until a second admin confirms it.
    Otherwise the other admin could act as two.
    """
    check_password(password, username)
    with lock_people():
        person = read_person(username)
        before, is_admin = assignments.find_password_row(person), username in list_admins()
        person.set_password(password)
        person.save(update_fields=["password"])
        if actor != username:
            needs_second = is_admin and actor is not None
            assignments.grant(
                person, assignments.CREDENTIAL, actor=actor, needs_second=needs_second
            )
        elif before is not None:
            assignments.change_password(before, person)
        end_sessions(person, keep=keep)
        _end_links(person)
        log_change(actor, f"set a new password for {username}")
    return person


def remove_password(username: str, *, actor: str | None) -> None:
    """Remove a person's password, and end their sessions, password links and sign-ins.

    They can log in once an admin sets a new password, or makes a new link.
    """
    with lock_people():
        person = read_person(username)
        person.set_unusable_password()
        person.save(update_fields=["password"])
        assignments.grant(person, assignments.CREDENTIAL, actor=actor)
        assignments.end_sign_ins(person, actor=actor)
        end_sessions(person)
        _end_links(person)
        log_change(actor, f"took the password of {username} away")


def end_sessions(person: User, *, keep: str | None = None) -> int:
    """Delete a person's sessions except the one with the key `keep`; return their number."""
    ended = [
        session.session_key
        for session in Session.objects.iterator()
        if session.session_key != keep and session.get_decoded().get(SESSION_KEY) == str(person.pk)
    ]
    name = person.get_username()
    transaction.on_commit(lambda: sessions_ended.send_robust(sender=User, person=name), robust=True)
    return Session.objects.filter(session_key__in=ended).delete()[0]


@contextmanager
def lock_people() -> Iterator[None]:
    """Run the block in a transaction that holds the lock for changes of people."""
    with transaction.atomic():
        GroupRow.objects.select_for_update(no_key=True).get_or_create(name=Group.ADMINS)
        yield


def read_person(username: str) -> User:
    """Return the person with this username. Raise UnknownPerson."""
    person = User.objects.filter(username=username).first()
    if person is None:
        raise UnknownPerson(username)
    return person


def _end_links(person: User) -> None:
    PasswordLink.objects.filter(person=person, ended_at=None).update(ended_at=clock.read_time())


def _join(person: User, groups: Collection[str], actor: str | None) -> None:
    """Record new groups and ended ones. Groups that the person keeps keep their giver and time."""
    before = _read_groups(person)
    rows = assignments.read_latest([person])
    names = list_groups()
    if unknown := sorted(set(groups) - set(names)):
        raise InvalidInput("group", f"{unknown[0]} does not exist")
    for group in names:
        row = rows.get((person.pk, group))
        if group not in groups:
            assignments.end_right(person, group, actor=actor)
        elif group not in before or not assignments.is_in_force(row):
            needs_second = group == Group.ADMINS and len(list_admins()) > 1 and actor is not None
            assignments.grant(person, group, actor=actor, needs_second=needs_second)
    person.groups.set([GroupRow.objects.get_or_create(name=group)[0] for group in groups])


def list_groups() -> tuple[str, ...]:
    """Name all groups: ours, and those that exist to be named by rules."""
    return (*Group, *list_named_groups())


def _read_groups(person: User) -> set[str]:
    names = list_groups()
    return {name for name in person.groups.values_list("name", flat=True) if name in names}


def list_admins() -> set[str]:
    """Name the people who have an admin's rights now."""
    users = User.objects.filter(is_active=True, groups__name=Group.ADMINS)
    standings = map(principals.find_principal, map(principals.make_actor, users))
    return {
        principal.person
        for principal in standings
        if principal and Group.ADMINS in principal.groups
    }


def require_other_admin(person: User, act: str) -> None:
    """Raise LastAdmin if this person is the last active admin, who cannot do this `act`."""
    if list_admins() == {person.username}:
        raise LastAdmin(f"{person.username} is the last active admin and cannot {act}.")


def check_username(username: str) -> str:
    """Return a username. Raise InvalidInput naming `username` if no person may have it."""
    if not 1 <= len(username) <= MAX_USERNAME:
        raise InvalidInput("username", f"must have 1 to {MAX_USERNAME} characters")
    try:
        ASCIIUsernameValidator()(username)
    except ValidationError as exc:
        raise InvalidInput(
            "username", "may hold only the letters a to z, digits and @ . + - _"
        ) from exc
    if not _FIRST.match(username):
        raise InvalidInput("username", "must begin with a letter or a digit")
    return username


def check_password(password: str, username: str) -> None:
    """Raise InvalidInput naming `password` if a person with this username may not have it."""
    if len(password) > MAX_PASSWORD:
        raise InvalidInput("password", f"must have at most {MAX_PASSWORD} characters")
    try:
        validate_password(password, User(username=username))
    except ValidationError as exc:
        raise InvalidInput("password", f"is not good enough: {' '.join(exc.messages)}") from exc


def _join_groups(groups: Collection[str]) -> str:
    return ", ".join(sorted(groups)) or "no group"


def save_profile(username: str, *, full_name: str, email: str, actor: str) -> None:
    """Save a person's name and mail address; each may be empty. Raise InvalidInput naming `full_name` or `email`."""
    fields = {"first_name": check_name(full_name), "last_name": "", "email": check_mail(email)}
    if not User.objects.filter(username=username).update(**fields):
        raise UnknownPerson(username)
    log_change(actor, f"changed the name or the mail address of {username}")


def check_name(text: str) -> str:
    """Return a full name without outer blanks. Raise InvalidInput naming `full_name`."""
    name = text.strip()
    if len(name) > MAX_NAME or not name.isprintable():
        raise InvalidInput("full_name", f"must have at most {MAX_NAME} visible characters")
    return name


def check_mail(text: str) -> str:
    """Return a mail address, or an empty text. Raise InvalidInput naming `email`."""
    address = text.strip()
    return check_address(address, "email") if address else ""


def check_address(address: str, field: str) -> str:
    """Return a mail address. Raise InvalidInput naming `field` if no mail could be sent to it."""
    if len(address) > MAX_ADDRESS:
        raise InvalidInput(field, f"must have at most {MAX_ADDRESS} characters")
    try:
        _is_address(address)
        address.rpartition("@")[2].encode("idna")  # as a mail to it does
    except (ValidationError, UnicodeError) as exc:
        raise InvalidInput(field, "must be a mail address, as in bea@example.com") from exc
    return address


def list_named_groups() -> list[str]:
    """Return the names of these groups in order."""
    names = GroupRow.objects.exclude(name__in=list(Group)).order_by("name")
    return [name for name in names.values_list("name", flat=True) if is_named(name)]
