from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False  # an index is created concurrently

    dependencies = [
        ("runtime", "0003_idle_since"),
    ]

    operations = [
        AddIndexConcurrently(
            model_name="run",
            index=models.Index(
                condition=models.Q(("ended_at__isnull", True)),
                fields=["idle_since"],
                name="run_idle",
            ),
        ),
        RemoveIndexConcurrently(model_name="run", name="run_active"),
    ]
