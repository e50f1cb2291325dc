"""Defines the table of schemas of tools."""

from django.db import models


class ToolSchema(models.Model):
    """The schema of a tool, to which approvals refer by its digest. Web and workers may not change or delete it."""

    digest = models.TextField(primary_key=True)
    body = models.TextField()
