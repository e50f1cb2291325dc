"""The published agents, as rows: what the web knows of them without importing author code; and forms that were sent."""

from django.db import models
from django.db.models.functions import Now


class PublishedAgent(models.Model):
    """One agent as a worker last published it. `tools` has one object per tool, with its schema and terms."""

    name = models.TextField(primary_key=True)
    description = models.TextField()
    fingerprint = models.TextField()
    input_schema = models.JSONField()
    tools = models.JSONField()
    subagents = models.JSONField()
    steps = models.JSONField(null=True)
    published_at = models.DateTimeField(db_default=Now())


class SentForm(models.Model):
    """A form that started a run: its number, given out with the page, makes sending it twice start one run."""

    number = models.UUIDField(primary_key=True)
    person = models.TextField()
    run = models.UUIDField(null=True)
    sent_at = models.DateTimeField(db_default=Now())
