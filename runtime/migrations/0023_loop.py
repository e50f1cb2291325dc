"""When each loop of the sweeper last did its work."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies: ClassVar = [("runtime", "0022_loss_worker")]

    operations: ClassVar = [
        migrations.CreateModel(
            name="Loop",
            fields=[
                ("name", models.TextField(primary_key=True, serialize=False)),
                ("done_at", models.DateTimeField()),
            ],
        ),
    ]
