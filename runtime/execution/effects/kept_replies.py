"""Keeps the received parts of replies in Postgres, in one thread, so that models and runners do not wait for it."""

import logging
import threading
from dataclasses import dataclass
from datetime import datetime

from runtime.execution.effects.running import RunningEffect
from runtime.ports.effects import ModelRequest, PartialReply
from runtime.store import failpoints, pool
from runtime.store.leases import Claim
from runtime.store.tables import partial_replies
from runtime.store.tables.partial_replies import KeptPart

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyPlace:
    """The model call that a part belongs to: an attempt in a turn of a claimed run."""

    claim: Claim
    turn: int
    attempt: int

    def part(self, request: ModelRequest, found: PartialReply, at: datetime) -> KeptPart:
        """Return the row of a received part."""
        return KeptPart(
            frame=request.frame,
            turn=self.turn,
            attempt=self.attempt,
            at=at,
            text=found.text,
            tokens=found.tokens,
            model=found.model,
            usage=found.usage,
            cost=found.cost,
        )


class ReplyKeeper:
    """Writes the newest part of each running reply. Its thread starts with the first part."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._parts: dict[RunningEffect, tuple[Claim, KeptPart]] = {}
        self._thread: threading.Thread | None = None
        self._closed = False

    def keep(self, effect: RunningEffect, claim: Claim, part: KeptPart) -> None:
        """Have a part written in place of the one before. Returns at once."""
        with self._changed:
            self._parts[effect] = (claim, part)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="replies", daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self) -> None:
        """Stop the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while (found := self._next()) is not None:
            effect, claim, part = found
            try:
                _write(effect, claim, part)
            except Exception as exc:  # a part is worth no retry: the next one follows
                log.warning("Run %s: part of a reply not kept: %s", claim.run, exc)

    def _next(self) -> tuple[RunningEffect, Claim, KeptPart] | None:
        with self._changed:
            while not self._parts and not self._closed:
                self._changed.wait()
            if self._closed:
                return None
            effect = next(iter(self._parts))
            return (effect, *self._parts.pop(effect))


def _write(effect: RunningEffect, claim: Claim, part: KeptPart) -> None:
    """Write a part, unless its reply has ended: the runner takes the same lock before it journals the reply."""
    with effect.keeping:
        if effect.is_settled:
            return
        with pool.pooled() as connection, connection.transaction():
            partial_replies.write(connection, claim.run, part, owner=claim.owner, epoch=claim.epoch)
        effect.is_kept = True
    failpoints.hit("kept", "model", 0)
