"""Defines the tables of what people do besides deciding an approval: comments, claims, hand-overs and open pages."""

from uuid import uuid4

from django.db import models

from approvals.models.approvals import Approval
from approvals.models.signed import SignedRow
from runtime.keyring import purposes


class Comment(SignedRow):
    """A person's comment on an approval, signed. Never changed, never sent to the agent; retention deletes it."""

    PURPOSE = purposes.DECISIONS  # it can lead a reviewer to approve
    KIND = "comment"
    SIGNED_FIELDS = ("id", "approval_id", "person", "text", "at")

    id = models.UUIDField(primary_key=True, default=uuid4)
    approval = models.ForeignKey(Approval, on_delete=models.PROTECT, related_name="comments")
    person = models.TextField()
    text = models.TextField()
    at = models.DateTimeField()


class ApprovalClaim(models.Model):
    """The person who looks at an approval until `until`. Other people may still decide it: this gives no right."""

    approval = models.OneToOneField(
        Approval, on_delete=models.PROTECT, primary_key=True, related_name="claim"
    )
    person = models.TextField()
    at = models.DateTimeField()
    until = models.DateTimeField()


class Handover(SignedRow):
    """The last hand-over of an approval to a person, signed, until it is decided or given back. No right."""

    PURPOSE = purposes.DECISIONS  # its note can lead its reader to approve
    KIND = "hand-over"
    SIGNED_FIELDS = ("approval_id", "person", "by", "note", "at")

    approval = models.OneToOneField(
        Approval, on_delete=models.PROTECT, primary_key=True, related_name="handover"
    )
    person = models.TextField()
    by = models.TextField()
    note = models.TextField()
    at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["person"], name="handover_person")]


class ApprovalViewer(models.Model):
    """A person who has the page of an approval open, as the page last said. Old rows are deleted."""

    approval = models.ForeignKey(Approval, on_delete=models.PROTECT, related_name="viewers")
    person = models.TextField()
    at = models.DateTimeField(db_index=True)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["approval", "person"], name="approval_viewer_once"),
        )
