"""The three groups that rights come from."""

from typing import ClassVar

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

GROUPS = ("requesters", "reviewers", "admins")


def create_groups(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    group = apps.get_model("auth", "Group")
    for name in GROUPS:
        group.objects.get_or_create(name=name)


class Migration(migrations.Migration):
    dependencies: ClassVar = [
        ("approvals", "0002_audit_append_only"),
        ("auth", "0012_alter_user_first_name_max_length"),
    ]

    operations: ClassVar = [migrations.RunPython(create_groups, migrations.RunPython.noop)]
