"""When an instance asked last, and the framework that it named."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("approvals", "0004_outbox"),
    ]

    operations = [
        migrations.AddField(
            model_name="instance",
            name="last_request_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="instance",
            name="framework",
            field=models.TextField(db_default=""),
        ),
    ]
