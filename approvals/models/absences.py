"""Defines the table of people's absences."""

from django.db import models


class Absence(models.Model):
    """An act of a person about being away: they name a deputy for some days, or it ends. A trigger refuses changes.

    The row with the highest `seq` of a person is the current one. It is signed, so a program that only writes to
    Postgres can neither make a deputy nor restore an earlier row.
    """

    class AbsenceChange(models.TextChoices):
        SET = "set"
        ENDED = "ended"  # by either of the two, an admin, or on the command line

    username = models.TextField()
    seq = models.IntegerField()
    act = models.TextField(choices=AbsenceChange.choices)
    deputy = models.TextField()
    starts = models.DateTimeField()
    ends = models.DateTimeField()
    by = models.TextField(null=True)  # None is the command line
    at = models.DateTimeField()
    signature = models.TextField()  # hex
    key_id = models.TextField()

    class Meta:
        constraints = (models.UniqueConstraint(fields=["username", "seq"], name="absence_order"),)
        indexes = (models.Index(fields=["deputy"], name="absence_deputy"),)
