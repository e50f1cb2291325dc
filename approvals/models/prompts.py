"""Defines the table of acts on prompts."""

from django.db import models

from approvals.models.signed import SignedAct


class PromptAct(SignedAct):
    """An act on a version of a prompt. Version 0 is the text in the code."""

    class PromptChange(models.TextChoices):
        SAVED = "saved"  # a new version, with its text
        LABELLED = "labelled"  # the label points to the version
        PROPOSED = "proposed"  # for production; it waits for another admin
        SCHEDULED = "scheduled"  # by the only admin: in production at `effective_at`
        CONFIRMED = "confirmed"  # by another admin, or on the command line
        WITHDRAWN = "withdrawn"  # before it was in production

    KIND = "prompt"
    SIGNED_FIELDS = (
        *("name", "seq", "act", "number", "text", "note", "label"),
        *("by", "token", "at", "effective_at"),
    )

    name = models.TextField()
    act = models.TextField(choices=PromptChange.choices)
    number = models.IntegerField()  # of the version
    text = models.TextField(default="")  # empty unless the act is SAVED, as the note
    note = models.TextField(default="")
    label = models.TextField(default="")  # empty unless the act is LABELLED
    token = models.TextField(null=True)  # the public id of the API token, None for a session
    effective_at = models.DateTimeField(null=True)

    class Meta:
        constraints = (models.UniqueConstraint(fields=["name", "seq"], name="prompt_act_once"),)
