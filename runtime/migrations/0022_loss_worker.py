"""An index for the losses of one worker."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies: ClassVar = [("runtime", "0021_lateoutcome")]

    operations: ClassVar = [
        migrations.AddIndex(
            model_name="loss", index=models.Index(fields=["worker"], name="loss_worker")
        ),
    ]
