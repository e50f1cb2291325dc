"""The tables of agents: published agents and versions, rate limits of models, submitted forms."""

from django.db import models
from django.db.models.functions import Now


class PublishedAgent(models.Model):
    """One agent as a worker last published it. `tools` has one object per tool, with its schema and terms."""

    name = models.TextField(primary_key=True)
    title = models.TextField(
        db_default=""
    )  # what people read in place of the name; empty: the name
    description = models.TextField()
    fingerprint = models.TextField()
    input_schema = models.JSONField()
    tools = models.JSONField()
    subagents = models.JSONField()
    steps = models.JSONField(null=True)
    thread_memory = models.JSONField(
        null=True
    )  # what a run remembers of earlier runs of its thread
    published_at = models.DateTimeField(db_default=Now())


class AgentVersion(models.Model):
    """One version of an agent, as the first worker that had it described it.

    The fingerprint is the digest of `facts`, so a row that was tampered with is found out. Of two
    versions, the one with the later `published_at` is newer. Only `manage.py promote_version` changes it.
    """

    fingerprint = models.TextField(primary_key=True)
    agent = models.TextField()
    facts = models.TextField()  # JSON text, exactly as it was digested
    published_at = models.DateTimeField(db_default=Now())

    class Meta:
        indexes = [models.Index(fields=["agent", "published_at"], name="agent_versions")]


class RateLimit(models.Model):
    """The rate limit of one model; see agents.llm.rate_limits."""

    provider = models.TextField(primary_key=True)  # with the model: `openai:gpt-x`
    gap = models.FloatField()  # seconds between two requests, 0 for none
    served = models.FloatField()  # queue numbers released at `since`
    since = models.DateTimeField()
    issued = models.BigIntegerField()  # the last queue number issued
    hit_at = models.DateTimeField()


class FormSubmission(models.Model):
    """A form that started a run. The page contains its number, so that submitting it twice starts one run."""

    number = models.UUIDField(primary_key=True)
    person = models.TextField()
    run = models.UUIDField(null=True)
    sent_at = models.DateTimeField(db_default=Now())
