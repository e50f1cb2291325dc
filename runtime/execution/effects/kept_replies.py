"""Keeps the received parts of replies in Postgres, in one thread, so that models and runners do not wait for it."""

import logging
import threading
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime

from runtime.core.run.continuation import Frame
from runtime.execution.effects.running import RunningEffect
from runtime.ports.effects import PartialReply
from runtime.store import failpoints, pool
from runtime.store.leases import RunClaim
from runtime.store.tables import partial_replies
from runtime.store.tables.partial_replies import PartialReplyRow

log = logging.getLogger(__name__)


class ReplyKeeper:
    """Writes the newest part of each running reply. Its thread starts with the first part."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._parts: dict[RunningEffect, tuple[RunClaim, PartialReplyRow]] = {}
        self._thread: threading.Thread | None = None
        self._closed = False

    def keep(
        self,
        effect: RunningEffect,
        claim: RunClaim,
        frame: Frame,
        clock: Callable[[], datetime],
        received: PartialReply,
    ) -> None:
        """Have a part of a frame's reply written, which replaces the previous one. Returns at once."""
        kept_part = PartialReplyRow(
            frame=frame.id, turn=frame.turn, attempt=frame.attempt, at=clock(), **asdict(received)
        )
        with self._changed:
            self._parts[effect] = (claim, kept_part)
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
        while (entry := self._next()) is not None:
            effect, claim, kept_part = entry
            try:
                _write(effect, claim, kept_part)
            except Exception as exc:  # not retried: the next part follows
                log.warning("Run %s: part of a reply not kept: %s", claim.run, exc)

    def _next(self) -> tuple[RunningEffect, RunClaim, PartialReplyRow] | None:
        with self._changed:
            while not self._parts and not self._closed:
                self._changed.wait()
            if self._closed:
                return None
            effect = next(iter(self._parts))
            return (effect, *self._parts.pop(effect))


def _write(effect: RunningEffect, claim: RunClaim, kept_part: PartialReplyRow) -> None:
    """Write a part, unless its reply has ended: the runner takes the same lock before it journals the reply."""
    with effect.keeping:
        if effect.is_settled:
            return
        with pool.pooled() as connection, connection.transaction():
            partial_replies.write(
                connection, claim.run, kept_part, owner=claim.owner, epoch=claim.epoch
            )
        effect.is_kept = True
    failpoints.hit("kept", "model", 0)
