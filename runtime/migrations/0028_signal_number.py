"""Signals have no index of their number: they are found by their run, which has few."""

from typing import ClassVar

from django.db import migrations


class Migration(migrations.Migration):
    dependencies: ClassVar = [("runtime", "0027_packed")]

    operations: ClassVar = [
        migrations.RunSQL(
            "ALTER TABLE runtime_signal DROP CONSTRAINT IF EXISTS runtime_signal_pkey",
            migrations.RunSQL.noop,
        ),
    ]
