"""Keeps the received parts of replies in Postgres, in one thread, so that models and runners do not wait for it."""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime

from runtime.core.run.continuation import Continuation
from runtime.core.run.events import RetryScheduled
from runtime.execution.effects.outcomes import lost_reply
from runtime.execution.effects.running import RunningEffect
from runtime.ports.effects import Keep, ModelRequest, PartialReply
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

    def keep(self, effect: RunningEffect, claim: RunClaim, kept_part: PartialReplyRow) -> None:
        """Have a part written, which replaces the previous one. Returns at once."""
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


@dataclass(slots=True, kw_only=True, eq=False)
class RunReplies:
    """The kept parts of the replies of one run. `ended` names the frames whose part the next step deletes."""

    claim: RunClaim
    keeper: ReplyKeeper
    clock: Callable[[], datetime]
    ended: frozenset[str] = frozenset()

    def lost(self, now: Continuation, parts: Mapping[str, PartialReplyRow]) -> list[RetryScheduled]:
        """Return an event for each reply that the worker before was receiving: the next request tells its model."""
        self.ended = frozenset(parts)
        retries = (lost_reply(now, kept_part, self.clock()) for kept_part in parts.values())
        return [event for event in retries if event is not None]

    def keep(self, effect: RunningEffect, request: ModelRequest, now: Continuation) -> Keep:
        """Return what keeps the received part of a reply, from the thread of the models."""
        frame = now.frame(request.frame)

        def keep(partial: PartialReply) -> None:
            kept_part = PartialReplyRow(
                frame=request.frame,
                turn=frame.turn,
                attempt=frame.attempt,
                at=self.clock(),
                **asdict(partial),
            )
            self.keeper.keep(effect, self.claim, kept_part)

        return keep

    def end(self, effect: RunningEffect) -> None:
        """Record the end of a reply, once the part that is being written is there."""
        with effect.keeping:
            if effect.is_kept:
                self.ended |= {effect.request.frame}


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
