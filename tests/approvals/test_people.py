"""Making people."""

import importlib

import pytest
from django.apps import apps
from django.contrib.auth.models import Group as GroupRow
from django.contrib.auth.models import User

from approvals.errors import Invalid
from approvals.people import create_person
from approvals.policy import Group

pytestmark = pytest.mark.django_db


def test_a_migration_makes_the_groups_and_leaves_those_that_are_there() -> None:
    GroupRow.objects.all().delete()
    kept = GroupRow.objects.create(name=Group.REVIEWERS)
    migration = importlib.import_module("approvals.migrations.0003_groups")
    migration.create_groups(apps, None)
    assert GroupRow.objects.get(name=Group.REVIEWERS) == kept
    assert set(GroupRow.objects.values_list("name", flat=True)) == set(Group)


def test_a_person_can_log_in_and_is_in_their_groups() -> None:
    ada = create_person(
        username="ada", password="pass phrase", groups=[Group.REQUESTERS, Group.REVIEWERS]
    )
    assert ada.check_password("pass phrase")
    assert set(ada.groups.values_list("name", flat=True)) == {"requesters", "reviewers"}
    assert not ada.is_superuser
    assert not ada.is_staff


@pytest.mark.parametrize("again", ["ada", "Ada", "ADA"])
def test_a_name_is_given_once_however_it_is_cased(again: str) -> None:
    create_person(username="ada", password="one", groups=[])
    with pytest.raises(Invalid) as caught:
        create_person(username=again, password="two", groups=[Group.REVIEWERS])
    assert caught.value.field == "username"
    assert User.objects.count() == 1
