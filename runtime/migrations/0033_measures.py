from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runtime", "0032_run_active")]

    operations = [
        migrations.AddField("worker", "measures", models.JSONField(db_default={})),
        migrations.AddField("loop", "took", models.FloatField(null=True)),
    ]
