"""What a directory may do with SCIM 2.0 (RFC 7643 and 7644), as the storage of the library `scim2-server`.

The library reads and checks requests and writes the answers. Of a person we keep the username, which never changes,
names, addresses, `externalId` and whether they are active; anything else that is sent is ignored. Who is disabled or
deleted here loses everything at once, and no one gets a username again that another person had.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Annotated, Any
from uuid import UUID

import scim2_models as scim
from django.contrib.auth.models import User
from django.core.exceptions import RequestDataTooBig
from django.db import IntegrityError
from django.db.models import Q
from django.http import HttpRequest
from pydantic import Field
from scim2_models.path import CompareOperator, Comparison
from scim2_server.handler import ScimHandler
from scim2_server.requests import ScimRequest
from scim2_server.responses import ScimResponse
from scim2_server.service import ScimService
from scim2_server.storage import ScimStorage, SearchPage

from approvals import clock
from approvals.errors import AlreadyTaken, LastAdmin
from approvals.models import DirectoryEntry
from approvals.people import accounts, directories, mappings
from approvals.people.directories import DELETED, GROUP, PERSON, PeopleDirectory
from approvals.rights import assignments
from approvals.signed import rows as signed_rows
from approvals.signed.audit import log_change
from runtime.core.values.json_values import is_text
from runtime.errors import InvalidInput

MAX_RESULTS = 200
MAX_MEMBERS = 5000  # of a group
MAX_ATTRIBUTES = 10_000  # characters of the names and addresses of a person
MAX_TEXT = 200  # characters of a name of a group, and of an external id
_KEPT = ("name", "displayName", "emails", "active")
_DISABLED_HERE = "disabledHere"  # stored with them: the directory did not disable the person
_FILTERS = {
    "username": (PERSON, "name__iexact"),
    "displayname": (GROUP, "name__iexact"),
    "externalid": (None, "external_id"),
}


class DirectoryPerson(scim.Resource[Any]):
    """A person, with all that is kept of them."""

    __schema__ = scim.URN("urn:ietf:params:scim:schemas:core:2.0:User")

    user_name: Annotated[
        str | None, scim.Uniqueness.server, scim.Required.true, scim.Mutability.immutable
    ] = None
    name: scim.Name | None = None
    display_name: str | None = None
    active: bool | None = None
    emails: list[scim.Email] | None = None
    groups: Annotated[list[scim.GroupMembership] | None, scim.Mutability.read_only] = None


class DirectoryMember(scim.ComplexAttribute):
    """A person in a group."""

    value: Annotated[str | None, scim.Mutability.immutable, scim.CaseExact.true] = None
    ref: Annotated[scim.Reference["User"] | None, scim.Mutability.immutable] = Field(
        None, serialization_alias="$ref", validation_alias="$ref"
    )


class DirectoryGroup(scim.Resource[Any]):
    """A group of people. It has no groups in it."""

    __schema__ = scim.URN("urn:ietf:params:scim:schemas:core:2.0:Group")

    display_name: Annotated[str | None, scim.Uniqueness.server, scim.Required.true] = None
    members: list[DirectoryMember] | None = None


_PROVIDER = scim.ScimProvider(
    models=[DirectoryPerson, DirectoryGroup],
    config=scim.ServiceProviderConfig(
        patch=scim.Patch(supported=True),
        bulk=scim.Bulk(supported=False, max_operations=0, max_payload_size=0),
        filter=scim.Filter(supported=True, max_results=MAX_RESULTS),
        change_password=scim.ChangePassword(supported=False),
        sort=scim.Sort(supported=False),
        etag=scim.ETag(supported=True),
        authentication_schemes=[
            scim.AuthenticationScheme(
                type=scim.AuthenticationScheme.Type.oauthbearertoken,
                name="Bearer token",
                description="A token of a directory, which an admin makes",
            )
        ],
    ),
    # Microsoft Entra sends attributes that are no part of these, and names additions and removals in a filter.
    policy=scim.ScimPolicy(
        unknown=scim.ScimPolicy.Unknown.ignore,
        remove_value_as_filter=scim.ScimPolicy.RemoveValue.apply,
        unmatched_path_filter=scim.ScimPolicy.UnmatchedPathFilter.create,
    ),
)
_SERVICE = ScimService(_PROVIDER)


def answer_directory(
    directory: PeopleDirectory | None, request: HttpRequest, base_url: str, path: str
) -> ScimResponse:
    """Do what a directory asks for, without one nothing."""
    try:
        if directory is None:
            raise scim.UnauthorizedException(detail="Send a valid token of a directory.")
        scim_request = ScimRequest(
            method=request.method or "",
            base_url=base_url,
            path=path,
            query=request.GET.dict(),
            headers=request.headers,
            body=request.body,
        )
        return ScimHandler(_SERVICE, _Storage(directory)).handle(scim_request)
    except RequestDataTooBig:
        return _SERVICE.error_response(scim.PayloadTooLargeException())
    except scim.SCIMException as refused:
        return _SERVICE.error_response(refused)


def adopt(name: str, username: str, user_name: str) -> None:
    """Let a directory change a person who has an account, as if it had created them, under its own `user_name`.

    Only the command line may: whom a directory changes it can sign in as. Raise InvalidInput, UnknownPerson.
    """
    accounts.check_username(user_name)
    with accounts.lock_people():
        person, at = accounts.read_person(username), clock.read_time()
        if directories.find(name) is None:
            raise InvalidInput("directory", "has no token")
        if DirectoryEntry.objects.filter(
            Q(person=person) | Q(directory=name, kind=PERSON, name__iexact=user_name)
        ):
            raise InvalidInput("person", "belongs to a directory already, or the name there does")
        entry = DirectoryEntry(directory=name, kind=PERSON, name=user_name, person=person)
        entry.external_id, entry.attributes, entry.version = "", {}, 1
        entry.created_at = entry.changed_at = at
        signed_rows.add(entry)
        log_change(None, f"let the directory {name} change {username}")


class _Storage(ScimStorage):
    """The people and groups of one directory. It sees and changes no siblings."""

    def __init__(self, directory: PeopleDirectory) -> None:
        self.directory = directory
        self.entries = DirectoryEntry.objects.filter(directory=directory.name)

    @contextmanager
    def operation(self) -> Iterator[None]:
        """Hold the lock on people, so that a request is done whole or not at all."""
        try:
            with accounts.lock_people():
                yield
        except LastAdmin as refused:
            raise scim.ConflictException(detail=refused.detail) from refused
        except InvalidInput as refused:
            is_taken = isinstance(refused, AlreadyTaken)
            kind = scim.UniquenessException if is_taken else scim.InvalidValueException
            raise kind(detail=f"{refused.field} {refused.detail}") from refused
        except IntegrityError as refused:
            detail = "userName, displayName or externalId is taken"
            raise scim.UniquenessException(detail=detail) from refused

    def get(
        self, resource_type: scim.ResourceType, resource_id: str, *, response_parameters: Any = None
    ) -> scim.Resource[Any]:
        """Return a person or a group. Raise scim.NotFoundException.

        To be changed, a person has the `active` that the directory sent last.
        """
        entry = self._entry(resource_type, resource_id)
        [resource] = self._resources([entry])
        if response_parameters is None and isinstance(resource, DirectoryPerson):
            resource.active = entry.attributes.get("active")
        return resource

    def search(
        self,
        resource_types: list[scim.ResourceType],
        search_request: scim.SearchRequest[Any],
        **_: Any,
    ) -> SearchPage:
        """Return a page in the order of creation. Raise scim.InvalidFilterException but for one name or id."""
        rows = self.entries.filter(kind__in=[kind.name for kind in resource_types])
        if search_request.filter is not None:
            rows = rows.filter(**_build_condition(search_request.filter.ast))
        rows = rows.order_by("created_at", "pk").select_related("person")
        total = rows.count()
        start = min(search_request.start_index_0 or 0, total)
        count = MAX_RESULTS if search_request.count is None else search_request.count
        page = rows[start : start + min(max(count, 0), MAX_RESULTS)]
        signed = [row for row in page if signed_rows.is_valid(row)]
        return SearchPage(total, self._resources(signed))

    def create(
        self, resource_type: scim.ResourceType, resource: scim.Resource[Any]
    ) -> scim.Resource[Any]:
        """Create a person without a password, or a group."""
        kind, at = str(resource_type.name), clock.read_time()
        entry = DirectoryEntry(directory=self.directory.name, kind=kind, version=0, created_at=at)
        if isinstance(resource, DirectoryPerson):
            entry.name = str(resource.user_name)
            entry.attributes = {}
            giver, makers = self.directory.giver, self.directory.makers
            entry.person = accounts.create_person(
                username=entry.name, password=None, groups=[], actor=giver, behind=makers
            )
        return self._saved(entry, resource)

    def update(
        self, resource_type: scim.ResourceType, resource: scim.Resource[Any], **_: Any
    ) -> scim.Resource[Any]:
        """Replace a person or a group. The library compared its version, under the same lock."""
        return self._saved(self._entry(resource_type, resource.id), resource)

    def delete(self, resource_type: scim.ResourceType, resource_id: str, **_: Any) -> None:
        """Disable a person for good, or end a group."""
        entry = self._entry(resource_type, resource_id)
        if entry.person is None:
            self._put_members(entry, [])
            entry.delete()
        else:
            accounts.disable(entry.person.username, actor=self.directory.giver)
            for row in directories.list_memberships(self.directory, person=entry.person):
                assignments.end_right(entry.person, row.what, actor=self.directory.giver)
            entry.kind, entry.name = DELETED, entry.person.get_username()
            entry.external_id, entry.attributes = "", {"active": False}
            signed_rows.sign(entry)
            entry.save()
        log_change(
            self.directory.giver, f"deleted the {str(resource_type.name).lower()} {resource_id}"
        )

    def _entry(self, resource_type: scim.ResourceType, resource_id: str | None) -> DirectoryEntry:
        try:
            rows = self.entries.filter(kind=resource_type.name, pk=UUID(resource_id or ""))
        except ValueError:
            raise scim.NotFoundException from None
        entry = rows.select_related("person").first()
        if entry is None or not signed_rows.is_valid(entry):
            raise scim.NotFoundException
        return entry

    def _saved(self, entry: DirectoryEntry, resource: scim.Resource[Any]) -> scim.Resource[Any]:
        """Sign and save an entry, and give and end the rights that follow from it."""
        entry.external_id = _check_text("externalId", resource.external_id or "")
        former = entry.name
        if isinstance(resource, DirectoryGroup):
            entry.name = _check_text("displayName", resource.display_name or "")
        sent = resource.model_dump()
        # An admin or the command line disabled the person: the directory cannot enable them.
        is_disabled_here = (
            entry.person is not None
            and not entry.person.is_active
            and (_DISABLED_HERE in entry.attributes or entry.attributes.get("active") is not False)
        )
        entry.attributes = {name: sent[name] for name in _KEPT if name in sent}
        if is_disabled_here:
            entry.attributes[_DISABLED_HERE] = True
        written = json.dumps(entry.attributes)
        if len(written) > MAX_ATTRIBUTES or "\\u0000" in written:
            detail = "The names and addresses are too long, or have a NUL."
            raise scim.InvalidValueException(detail=detail)
        entry.version += 1
        entry.changed_at = clock.read_time()
        signed_rows.sign(entry)
        entry.save()
        if isinstance(resource, DirectoryGroup):
            ids = [member.value for member in resource.members or ()]
            self._put_members(entry, ids, renamed=entry.name != former)
        elif isinstance(resource, DirectoryPerson):
            self._change_person(entry, resource)
        return self._resources([entry])[0]

    def _change_person(self, entry: DirectoryEntry, resource: DirectoryPerson) -> None:
        person, giver = entry.person, self.directory.giver
        assert person is not None  # as it is an entry of a person
        username, name = person.get_username(), resource.name or scim.Name()
        parts = " ".join(part for part in (name.given_name, name.family_name) if part)
        full_name = resource.display_name or name.formatted or parts
        addresses = sorted(resource.emails or (), key=lambda email: not email.primary)
        email = addresses[0].value or "" if addresses else ""
        accounts.save_profile(username, full_name=full_name, email=email, actor=giver)
        if resource.active is False:
            accounts.disable(username, actor=giver)
        elif not person.is_active and _DISABLED_HERE not in entry.attributes:
            accounts.enable(username, actor=giver, groups=())
        person.refresh_from_db()
        mappings.follow_entries(self.directory, [entry])

    def _put_members(
        self, group: DirectoryEntry, ids: Collection[str | None], *, renamed: bool = False
    ) -> None:
        """Put exactly these people into a group, and apply what changed for each of them."""
        right, giver = self.directory.name_membership(group.pk), self.directory.giver
        after = self._people(ids)
        members = directories.list_memberships(self.directory, what=right)
        people = [row.person for row in members]
        signed = directories.list_signed_entries(self.directory, person__in=people)
        before = {entry.pk: entry for entry in signed}
        everybody = before | after
        changed = [key for key in everybody if (key in before) != (key in after)]
        for key in changed:
            person = everybody[key].person
            assert person is not None  # as only people are members
            change = assignments.grant if key in after else assignments.end_right
            change(person, right, actor=giver)
        affected = everybody if renamed else changed
        mappings.follow_entries(self.directory, [everybody[key] for key in affected])

    def _people(self, ids: Collection[str | None]) -> dict[UUID, DirectoryEntry]:
        """Return the people with these ids. Raise scim.InvalidValueException if the directory has one of them not."""
        if len(ids) > MAX_MEMBERS:
            raise scim.InvalidValueException(detail=f"A group has at most {MAX_MEMBERS} members.")
        try:
            keys = [UUID(text or "") for text in ids]
            signed = directories.list_signed_entries(self.directory, kind=PERSON, pk__in=keys)
            people = {entry.pk: entry for entry in signed}
            return {key: people[key] for key in keys}
        except (ValueError, KeyError):
            detail = "members: each must be a user of this directory."
            raise scim.InvalidValueException(detail=detail) from None

    def _resources(self, entries: Collection[DirectoryEntry]) -> list[scim.Resource[Any]]:
        """Return entries as resources, people with their groups and groups with their people."""
        people = [entry.person for entry in entries if entry.person is not None]
        rights = [self.directory.name_membership(entry.pk) for entry in entries]
        is_concerned = Q(person__in=people) | Q(what__in=rights)
        groups_of, people_in = (
            defaultdict[int, list[UUID]](list),
            defaultdict[UUID, list[int]](list),
        )
        for row in directories.list_memberships(self.directory, is_concerned):
            groups_of[row.person_id].append(group := self.directory.group_of(row))
            people_in[group].append(row.person_id)
        names = dict(self.entries.filter(pk__in=people_in).values_list("pk", "name"))
        ids = dict(self.entries.filter(person__in=groups_of).values_list("person", "pk"))
        resources: list[scim.Resource[Any]] = []
        for entry in entries:
            resource: scim.Resource[Any]
            if entry.person is None:
                resource = DirectoryGroup.model_validate(entry.attributes)
                keys = [ids[person] for person in people_in[entry.pk] if person in ids]
                resource.members = [
                    DirectoryMember(value=str(key), ref=f"Users/{key}") for key in keys
                ]
            else:
                sent = {name: entry.attributes[name] for name in _KEPT if name in entry.attributes}
                resource = DirectoryPerson.model_validate(sent)
                resource.user_name = entry.name
                if resource.active or not entry.person.is_active:  # else it was never sent
                    resource.active = entry.person.is_active
                resource.groups = [
                    scim.GroupMembership(
                        value=str(group), ref=f"Groups/{group}", display=names[group]
                    )
                    for group in groups_of[entry.person.pk]
                    if group in names
                ]
            resource.id, resource.external_id = str(entry.pk), entry.external_id or None
            resource.meta = scim.Meta(
                resource_type=entry.kind,
                created=entry.created_at,
                last_modified=entry.changed_at,
                version=f'W/"{entry.version}"',
            )
            resources.append(resource)
        return resources


def _build_condition(node: Any) -> dict[str, str]:
    """Return the condition of a filter that compares one name or id."""
    is_equation = isinstance(node, Comparison) and node.op is CompareOperator.eq
    attribute = str(node.attr_path).rpartition(":")[2].lower() if is_equation else ""
    if attribute not in _FILTERS or not isinstance(node.value, str) or not is_text(node.value):
        detail = "Compare userName, displayName or externalId with eq."
        raise scim.InvalidFilterException(detail=detail)
    kind, column = _FILTERS[attribute]
    return {column: node.value} if kind is None else {column: node.value, "kind": kind}


def _check_text(attribute: str, text: str) -> str:
    """Return a text that people read. Raise scim.InvalidValueException."""
    is_blank = attribute == "displayName" and not text.strip()
    if is_blank or len(text) > MAX_TEXT or not is_text(text):
        detail = f"{attribute} must have 1 to {MAX_TEXT} characters."
        raise scim.InvalidValueException(detail=detail)
    return text
