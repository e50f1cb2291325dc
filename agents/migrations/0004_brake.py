"""One row per provider of models that asked for fewer requests."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("agents", "0003_agentversion")]

    operations = [
        migrations.CreateModel(
            name="Brake",
            fields=[
                ("provider", models.TextField(primary_key=True, serialize=False)),
                ("gap", models.FloatField()),
                ("served", models.FloatField()),
                ("since", models.DateTimeField()),
                ("issued", models.BigIntegerField()),
                ("hit_at", models.DateTimeField()),
            ],
        ),
    ]
