"""Reads the inquiries of people about one call, also those that no worker has received.

The caller has checked that the run may be read.
"""

import json
from dataclasses import dataclass, replace
from uuid import UUID

from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import OuterRef

from runtime.core.run.continuation import RunStatus
from runtime.keyring import sealing
from runtime.models import Run, Signal
from runtime.reads.redaction import redact
from runtime.reads.trace.span import InquiryRecord
from runtime.reads.transcript import Transcript
from runtime.store.tables.signals import INQUIRY


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreceived:
    """Whether the run is quarantined, and the stored inquiries that no worker has received."""

    quarantined: bool
    bodies: tuple[str, ...]


def unreceived(run: UUID) -> Unreceived:
    """Read both with one query."""
    sent = Signal.objects.filter(run=OuterRef("pk"), kind=INQUIRY).order_by("id").values("body")
    rows = Run.objects.filter(id=run).annotate(sent=ArraySubquery(sent))
    status, bodies = rows.values_list("status", "sent").first() or ("", [])
    return Unreceived(quarantined=status == RunStatus.QUARANTINED, bodies=tuple(bodies))


def list_for_gate(
    transcript: Transcript, sent: Unreceived, gate: UUID, *, unsealed: bool = False
) -> tuple[InquiryRecord, ...]:
    """Return the inquiries about the call at this gate, oldest first; with `unsealed` as its reviewers read them."""
    received = [
        replace(inquiry, answer=sealing.text_for_reviewers(inquiry.sealed))
        if unsealed and inquiry.sealed
        else inquiry
        for inquiry in transcript.inquiries
        if inquiry.gate == gate
    ]
    ids = {inquiry.id for inquiry in transcript.inquiries}
    waiting = []
    for body in sent.bodies:
        try:
            document = json.loads(body)
            inquiry = InquiryRecord(
                id=UUID(document["question"]),
                gate=UUID(document["gate"]),
                by=str(document["by"]),
                text=redact(str(document["text"])),
            )
        except (ValueError, KeyError, TypeError):
            continue  # the worker reports it
        if inquiry.gate == gate and inquiry.id not in ids:
            waiting.append(inquiry)
    return (*received, *waiting)
