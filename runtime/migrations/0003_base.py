"""The run's row knows which continuation is the last one, so that an older one cannot take its place."""

from django.db import migrations, models

KNOWN = """
    UPDATE runtime_run SET base = runtime_continuation.position
    FROM runtime_continuation WHERE runtime_continuation.run_id = runtime_run.id
"""


class Migration(migrations.Migration):
    dependencies = [("runtime", "0002_journal")]

    operations = [
        migrations.AddField(
            model_name="run",
            name="base",
            field=models.BigIntegerField(db_default=0),
        ),
        migrations.RunSQL(KNOWN, migrations.RunSQL.noop),
    ]
