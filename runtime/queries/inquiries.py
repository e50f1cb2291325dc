"""Reads the inquiries of people about one call, also those that no worker has received.

The caller has checked that the run may be read.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from uuid import UUID

from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import OuterRef

from runtime.core.run.continuation import RunStatus
from runtime.keyring import sealing
from runtime.models import Run, Signal
from runtime.queries.redaction import redact
from runtime.queries.spans.inquiries import InquiryRecord
from runtime.queries.transcript.transcript import Transcript
from runtime.store.tables.signals import INQUIRY


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreceived:
    """Whether the run is quarantined, and the stored inquiries that no worker has received."""

    quarantined: bool
    bodies: tuple[str, ...]


def unreceived(run: UUID) -> Unreceived:
    """Read both with one query."""
    sent = Signal.objects.filter(run=OuterRef("pk"), kind=INQUIRY).order_by("id").values("body")
    found = Run.objects.filter(id=run).annotate(sent=ArraySubquery(sent))
    status, bodies = found.values_list("status", "sent").first() or ("", [])
    return Unreceived(quarantined=status == RunStatus.QUARANTINED, bodies=tuple(bodies))


def of_gate(
    transcript: Transcript, sent: Unreceived, gate: UUID, *, opened: bool = False
) -> tuple[InquiryRecord, ...]:
    """Return the inquiries about the call at this gate, oldest first; with `opened` as its reviewers read them."""
    told = [
        replace(one, answer=sealing.text_for_reviewers(one.sealed))
        if opened and one.sealed
        else one
        for one in transcript.inquiries
        if one.gate == gate
    ]
    known = {one.id for one in transcript.inquiries}
    return (*told, *(one for one in _read(sent.bodies) if one.gate == gate and one.id not in known))


def _read(bodies: Iterable[str]) -> list[InquiryRecord]:
    """Read stored inquiries. One that cannot be read is left out: the worker reports it."""
    found = []
    for body in bodies:
        try:
            sent = json.loads(body)
            found.append(
                InquiryRecord(
                    id=UUID(sent["question"]),
                    gate=UUID(sent["gate"]),
                    by=str(sent["by"]),
                    text=redact(str(sent["text"])),
                )
            )
        except (ValueError, KeyError, TypeError):
            continue
    return found
