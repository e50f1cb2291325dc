"""Defines the table of people's absences."""

from django.db import models

from approvals.models.signed import SignedAct


class Absence(SignedAct):
    """An act of a person about being away: they name a deputy for some days, or it ends.

    The row with the highest `seq` of a person is the current one.
    """

    class AbsenceChange(models.TextChoices):
        SET = "set"
        ENDED = "ended"  # by either of the two, an admin, or on the command line

    KIND = "absence"
    SIGNED_FIELDS = ("username", "seq", "act", "deputy", "starts", "ends", "by", "at")

    username = models.TextField()
    act = models.TextField(choices=AbsenceChange.choices)
    deputy = models.TextField()
    starts = models.DateTimeField()
    ends = models.DateTimeField()

    class Meta:
        constraints = (models.UniqueConstraint(fields=["username", "seq"], name="absence_order"),)
        indexes = (models.Index(fields=["deputy"], name="absence_deputy"),)
