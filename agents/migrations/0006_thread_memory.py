"""What the runs of an agent remember."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("agents", "0005_words")]

    operations = [
        migrations.AddField("publishedagent", "thread_memory", models.JSONField(null=True)),
    ]
