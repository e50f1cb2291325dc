"""Failed logins, so far counted in a table of django-axes."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies: ClassVar = [("approvals", "0016_unused_indexes")]

    operations: ClassVar = [
        migrations.CreateModel(
            name="LoginFailures",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("address", models.TextField()),
                ("username", models.TextField()),
                ("failures", models.IntegerField()),
                ("at", models.DateTimeField(db_index=True)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("address", "username"), name="login_failures")
                ]
            },
        ),
    ]
