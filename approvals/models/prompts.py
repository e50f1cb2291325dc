"""Defines the table of acts on prompts."""

from django.db import models


class PromptAct(models.Model):
    """An act on a version of a prompt, signed. A trigger refuses changes and deletions.

    The acts on one prompt are numbered without gaps, so a deleted one is noticed. Number 0 is the text in the code.
    """

    class PromptChange(models.TextChoices):
        SAVED = "saved"  # a new version, with its text
        LABELLED = "labelled"  # the label points to the version
        PROPOSED = "proposed"  # for production; it waits for another admin
        SCHEDULED = "scheduled"  # by the only admin: in production at `effective_at`
        CONFIRMED = "confirmed"  # by another admin, or on the command line
        WITHDRAWN = "withdrawn"  # before it was in production

    name = models.TextField()
    seq = models.IntegerField()
    act = models.TextField(choices=PromptChange.choices)
    number = models.IntegerField()  # of the version
    text = models.TextField()  # empty unless the act is SAVED, as the note
    note = models.TextField()
    label = models.TextField()  # empty unless the act is LABELLED
    by = models.TextField(null=True)  # None is the command line
    token = models.TextField(null=True)  # the public id of the API token, None for a session
    at = models.DateTimeField()
    effective_at = models.DateTimeField(null=True)
    signature = models.TextField()  # hex
    key_id = models.TextField()

    class Meta:
        constraints = (models.UniqueConstraint(fields=["name", "seq"], name="prompt_act_once"),)
