"""Postgres refuses a request whose risk does not exist; lists chose by risk and left such a row out."""

from typing import ClassVar

from django.db import migrations, models

RISKS = ["low", "medium", "high"]
# Such a row was tampered with and is shown so: its seal still covers the original risk.
REPAIR = """
UPDATE approvals_request SET risk = 'high' WHERE risk NOT IN ('low', 'medium', 'high')
"""


class Migration(migrations.Migration):
    dependencies: ClassVar = [("approvals", "0011_assignments")]

    operations: ClassVar = [
        migrations.RunSQL(REPAIR, migrations.RunSQL.noop),
        migrations.AddConstraint(
            "request",
            models.CheckConstraint(condition=models.Q(risk__in=RISKS), name="request_risk"),
        ),
    ]
