"""The published agents, as rows: what the web knows of them without importing author code."""

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
