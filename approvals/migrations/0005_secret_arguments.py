"""Hides arguments that a schema marks as write-only from programs: makes the functions of 0001 as they are now."""

from importlib import import_module

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("approvals", "0004_fewer_orders")]

    operations = [
        migrations.RunSQL(import_module("approvals.migrations.0001_first_release").EVENTS)
    ]
