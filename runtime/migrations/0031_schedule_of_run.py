"""An index for the schedule of a run."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runtime", "0030_schedules")]

    operations = [
        migrations.AddIndex(
            model_name="scheduletime",
            index=models.Index(
                fields=["run"],
                name="schedule_time_run",
                condition=models.Q(run__isnull=False),
            ),
        ),
    ]
